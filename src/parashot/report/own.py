"""The report on the user's own training: one page, the recommendation as JSON, every timed block as CSV."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from textwrap import fill
from typing import Any

from parashot.files import replacing_folder, write_text
from parashot.questions import text
from parashot.questions.own.advice import ELSEWHEN, MARGIN, OwnAdvice, to_copy
from parashot.questions.own.records import PLAIN, RAW, OwnResults, OwnWay, SizeRow
from parashot.questions.runs import Stage
from parashot.questions.statistics import flat
from parashot.questions.ways.rows import WayRow, step_seconds_by_way, way_settings
from parashot.records import Hardware, Provenance, Run, write_rows
from parashot.report.canvas import Drawing, svg
from parashot.report.figures import Mark, draw_choices, round_ratios
from parashot.report.tables import Column, Table, times
from parashot.templates import render

COMPUTED = ("forward", "backward", "exchange", "optimizer", "idle")
"""Parts of a step besides its data."""


@dataclass(frozen=True)
class SearchRow:
    """A way in the search."""

    way: OwnWay
    blocks: int
    seconds_per_step: float


@dataclass(frozen=True)
class PartsRow:
    """A way, and the shares of its step by name."""

    way: OwnWay
    shares: dict[str, float]


def _part(name: str) -> Column[PartsRow]:
    return Column(name, lambda row: row.shares[name], text.percent)


FINALS = Table[WayRow[OwnWay]](
    "finals",
    "The default and the best ways found, timed in turn; speedups over the default, each interval by itself, "
    f"with {ELSEWHEN:.0%} for other processes and hours",
    Column("way", lambda row: str(row.way), number=False),
    Column("seconds per step", lambda row: row.seconds_per_step, text.number),
    Column("speedup", lambda row: row.speedup, times),
    Column("waiting for data", lambda row: row.waiting, text.percent),
    Column("memory of the loader", lambda row: row.memory_bytes, text.size),
)
SEARCH = Table[SearchRow](
    "search",
    "All ways, the fastest of those that were tried longest first",
    Column("way", lambda row: str(row.way), number=False),
    Column("blocks", lambda row: row.blocks),
    Column("seconds per step", lambda row: row.seconds_per_step, text.number),
)
PARTS = Table[PartsRow](
    "parts",
    "Shares of a step: by the clock what waits for data, the rest by the profiler",
    Column("way", lambda row: str(row.way), number=False),
    *map(_part, ("data", *COMPUTED)),
)
SIZES = Table[SizeRow](
    "sizes",
    "Larger batches in the way that is recommended, each by a run of its own",
    Column("batch size", lambda row: row.batchsz),
    Column("seconds per step", lambda row: row.seconds_per_step, text.number),
    Column("samples per second", lambda row: row.samples_per_second, text.number),
    Column("memory", lambda row: row.memory_bytes, text.size),
)


def write_own_report(
    folder: Path, file: Path, results: OwnResults, advice: OwnAdvice | None, hardware: Hardware
) -> None:
    """Write `folder`, whole or not at all: every block; with advice also advice.json and index.html."""
    with replacing_folder(folder) as new:
        for name, kind in RAW.items():
            write_rows(new / f"{name}.csv", kind, getattr(results, name))
        if advice is not None:
            tree = as_json(results, advice, hardware)
            write_text(new / "advice.json", json.dumps(tree, indent=2, ensure_ascii=False) + "\n")
            write_text(new / "index.html", _page(file, results, advice, hardware))


def own_runs(file: Path, results: OwnResults, advice: OwnAdvice) -> list[Run]:
    """A run for MLflow of each finalist."""
    stage = Stage(file.name, "measure", Provenance())
    return [stage.child(each) for each in way_settings(advice.rows, results.finals, "")]


def as_json(results: OwnResults, advice: OwnAdvice, hardware: Hardware) -> dict[str, Any]:
    """The recommendation, a row for each finalist, what was skipped, and the machine."""
    return {
        "sentence": advice.sentence,
        "decided": advice.choice.decided,
        "as_good": advice.as_good,
        "stopped": results.stopped,
        "warnings": [*results.warnings],
        "gradient_differences": results.gradients,
        "advised": asdict(advice.row.way),
        "to_copy": lines_to_copy(results, advice, hardware),
        "finalists": [{**flat(row), "way": asdict(row.way)} for row in advice.rows],
        "parts": {row.way.way: row.shares for row in parts_rows(results, advice)},
        "batch_sizes": [
            {**asdict(each), "samples_per_second": each.samples_per_second} for each in results.sizes
        ],
        "no_larger": results.no_larger,
        "tried": len(results.ways),
        "skipped": {each.what: each.reason for each in results.skipped},
        "hardware": asdict(hardware),
    }


def _page(file: Path, results: OwnResults, advice: OwnAdvice, hardware: Hardware) -> str:
    """Render the page; nothing in it is fetched from anywhere."""
    tables: tuple[Table[Any], ...] = (
        FINALS.of(advice.rows),
        SEARCH.of(_search_rows(results)),
        PARTS.of(parts_rows(results, advice)),
        SIZES.of(results.sizes),
    )
    return render(
        "report/own.html.j2",
        file=file.name,
        results=results,
        advice=advice,
        hardware=hardware,
        drawings={"finals": _drawing(results, advice)},
        tables={each.name: each for each in tables},
        to_copy=lines_to_copy(results, advice, hardware),
        launches=len({each.launch for each in results.finals}),
        margin=MARGIN,
        svg=svg,
        text=text,
    )


def _search_rows(results: OwnResults) -> list[SearchRow]:
    """A row for each way: those that were left longest first, the fastest of them first."""
    blocks = (*results.search, *(replace(each, launch=1) for each in results.refining))
    seconds = {way: list(series.values()) for way, series in step_seconds_by_way(blocks).items()}
    rows = [
        SearchRow(way, len(seconds[way.way]), median(seconds[way.way]))
        for way in results.ways
        if way.way in seconds
    ]
    return sorted(rows, key=lambda row: (-row.blocks, row.seconds_per_step))


def parts_rows(results: OwnResults, advice: OwnAdvice) -> list[PartsRow]:
    """Shares of a step with its loading: what does not wait for data is shared out as the profiler saw it."""
    rows, timed = [], {row.way.way: row for row in advice.rows}
    for parts in results.parts:
        waiting = timed[parts.way].waiting.value
        shares = {name: getattr(parts, name) * (1 - waiting) for name in COMPUTED}
        rows.append(PartsRow(timed[parts.way].way, {"data": waiting, **shares}))
    return rows


def lines_to_copy(results: OwnResults, advice: OwnAdvice, hardware: Hardware) -> list[str]:
    """Lines of PyTorch that train in the way that is recommended."""
    return to_copy(advice.row.way, bool(hardware.gpus), results.unused)


LABEL = 30
"""Characters of a line beside a figure."""


def _drawing(results: OwnResults, advice: OwnAdvice) -> Drawing | None:
    """The finalists' speedups; None where only the default was left."""
    seconds = step_seconds_by_way(results.finals)
    choices = [
        Mark(
            "Over the default",
            fill(str(way), LABEL),
            row.speedup,
            round_ratios(seconds[PLAIN], seconds[way.way]),
            way.way == advice.choice.choice,
        )
        for row in advice.rows
        if row.speedup and (way := row.way).way != PLAIN
    ]
    said = ("the best ways over the default", "the default", "recommended")
    return draw_choices("finals", "What it buys", said, choices)
