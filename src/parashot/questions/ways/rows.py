"""Ways to train: from timed blocks to a row each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from parashot.questions.runs import Setting
from parashot.questions.statistics import Interval, by_round, median_of_rounds, paired_ratio
from parashot.questions.ways.records import Way, WayBlock

W = TypeVar("W", bound=Way)


@dataclass(frozen=True)
class WayRow(Generic[W]):
    """What was measured of one way to train; `speedup` is over the base case."""

    way: W
    blocks: int
    items: int  # of all blocks
    seconds: float  # that they took
    seconds_per_step: Interval
    speedup: Interval | None  # None where the base case was not measured
    waiting: Interval  # share of the time without a batch
    memory_bytes: int  # the largest seen, above the ranks without a loader


def way_rows(
    ways: Sequence[W], blocks: Sequence[WayBlock], base: str, confidence: float, beyond: float = 0.0
) -> list[WayRow[W]]:
    """Return a row for each way; every speedup is over `base`.

    beyond: part by which a speedup may be another one for reasons that no block shows.
    """
    seconds, rows = step_seconds_by_way(blocks), []
    for way in ways:
        mine = [each for each in blocks if each.way == way.way]
        own = seconds.get(way.way, {})
        waiting = {(each.launch, each.round): each.waiting_seconds / each.seconds for each in mine}
        speedup = paired_ratio(seconds[base], own, confidence) if base in seconds else None
        if speedup is not None and way.way != base:
            speedup = speedup.widened(beyond)
        row = WayRow(
            way,
            blocks=len(mine),
            items=sum(each.steps for each in mine) * way.batchsz,
            seconds=sum(each.seconds for each in mine),
            seconds_per_step=median_of_rounds(own, confidence),
            speedup=speedup,
            waiting=median_of_rounds(waiting, confidence),
            memory_bytes=max(each.memory_bytes for each in mine),
        )
        rows.append(row)
    return rows


def way_settings(rows: Sequence[WayRow[W]], blocks: Sequence[WayBlock], prefix: str) -> list[Setting]:
    """One setting for each row, named after its way."""
    seconds, settings = step_seconds_by_way(blocks), []
    for row in rows:
        options = {name: value for name, value in asdict(row.way).items() if name != "way"}
        series = {"seconds_per_step": list(seconds[row.way.way].values())}
        settings.append(Setting(f"{prefix}{row.way.way}", options, row, series))
    return settings


def step_seconds_by_way(blocks: Iterable[WayBlock]) -> dict[str, dict[Any, float]]:
    """Seconds per training step: by way, then by launch and round."""
    return by_round((each.way, (each.launch, each.round), each.seconds / each.steps) for each in blocks)
