"""Result of a benchmark: tables to read, and the same numbers as JSON with hardware and versions."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.checkout import ROOT
from parashot.command import output
from parashot.files import write_text
from parashot.hardware import inspect_hardware
from parashot.questions import statistics
from parashot.questions.statistics import CONFIDENCE, Interval
from parashot.questions.text import number

Cell = str | int | float | Interval | None

_PACKAGES = ("parashot", "torch", "torchvision", "numpy", "pillow")


def median_of(values: Sequence[float]) -> Interval:
    """Median of at least 2 blocks with its 95% interval."""
    return statistics.median_interval(values, CONFIDENCE)


def ratio_of(numerator: Sequence[float], denominator: Sequence[float]) -> Interval:
    """Ratio with its 95% interval, the geometric mean over rounds; item i of both is of round i."""
    if len(numerator) != len(denominator):
        raise ValueError(f"{len(numerator)} and {len(denominator)} rounds: paired ones are needed")
    above, below = dict(enumerate(numerator)), dict(enumerate(denominator))
    return statistics.paired_ratio(above, below, CONFIDENCE)


def verdict(measured: Interval, wanted: float, *, least: bool = True) -> str:
    """Judge a bound, the least or the most: it holds where the whole interval reaches it."""
    if least:
        holds, missed = measured.low >= wanted, measured.high < wanted
    else:
        holds, missed = measured.high <= wanted, measured.low > wanted
    return "holds" if holds else "falls short" if missed else "undecided"


@dataclass(frozen=True)
class Table:
    """A table; column names hold the unit, cells are numbers, intervals or words."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Outcome:
    """Result of one benchmark; `raw` holds what the tables are made from, block by block.

    A non-empty `settings["short"]` makes the command end with status 1.
    """

    benchmark: str
    tables: Sequence[Table]
    raw: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


def show(outcome: Outcome) -> str:
    """Format all tables as text."""
    return "\n\n".join(f"{table.title}\n\n{aligned(table)}" for table in outcome.tables) + "\n"


def save(outcome: Outcome, path: Path) -> None:
    """Write `outcome` as JSON, with commit, hardware and versions; an interval is [value, low, high]."""
    tree = {
        "benchmark": outcome.benchmark,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        # with `+` where the tree differs from it; None outside of git
        "commit": output(ROOT, "git", "describe", "--always", "--dirty=+") or None,
        "hardware": asdict(inspect_hardware()),
        "kernel": platform.release(),
        "versions": _versions(),
        "seconds": round(outcome.seconds, 1),
        "settings": dict(outcome.settings),
        "tables": [
            {
                "title": table.title,
                "rows": [dict(zip(table.columns, map(_plain, row), strict=True)) for row in table.rows],
            }
            for table in outcome.tables
        ],
        "raw": dict(outcome.raw),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(tree, indent=1) + "\n")


def aligned(table: Table) -> str:
    """Format a table as Markdown with aligned columns."""
    cells = [list(table.columns), *([_words(cell) for cell in row] for row in table.rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |"
        for row in cells
    ]
    lines.insert(1, f"|{'|'.join('-' * (width + 2) for width in widths)}|")
    return "\n".join(lines)


def _plain(cell: Cell) -> Any:
    return [cell.value, cell.low, cell.high] if isinstance(cell, Interval) else cell


def _words(cell: Cell) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, Interval):
        if cell.low == cell.high:
            return number(cell.value)
        return f"{number(cell.value)} ({number(cell.low)} to {number(cell.high)})"
    return number(cell) if isinstance(cell, float) else f"{cell:,}" if isinstance(cell, int) else cell


def _versions() -> dict[str, str]:
    installed = {each.metadata["Name"].lower(): each.version for each in metadata.distributions()}
    packages = {name: installed[name] for name in _PACKAGES if name in installed}
    return {"python": platform.python_version(), **packages}
