"""Refining: the best way found, and the same with one thing changed, timed in turn."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from parashot.questions.own.candidates import combined
from parashot.questions.own.records import OwnWay
from parashot.questions.ways.records import WayBlock
from parashot.questions.ways.rows import step_seconds_by_way

WORTH = 0.02
"""Least gain of a change that is kept. The finals time all that is kept together, with intervals."""


def refined(way: OwnWay, changed: Sequence[OwnWay], blocks: Sequence[WayBlock]) -> OwnWay:
    """`way` with every change that made it faster, judged by the median over rounds."""
    seconds = step_seconds_by_way(blocks)
    kept = [each for each in changed if _gain(seconds[way.way], seconds[each.way]) > 1 + WORTH]
    return combined(way, kept)


def _gain(base: dict[tuple[int, int], float], other: dict[tuple[int, int], float]) -> float:
    return median(base[number] / other[number] for number in base.keys() & other.keys())
