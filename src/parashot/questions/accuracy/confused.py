"""Unseen classes that are mistaken for one another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from parashot.questions.accuracy.records import Confusion

_MOST = 10


@dataclass(frozen=True)
class ConfusionRow:
    """Two different classes; `share` of the queries that might have been mistaken were."""

    actual: str
    taken_for: str
    offered: int
    taken: int
    share: float


def worst_confusions(counts: Iterable[Confusion]) -> list[ConfusionRow]:
    """Return the pairs that are mistaken most often, the worst first."""
    rows = [
        ConfusionRow(each.actual, each.taken_for, each.offered, each.taken, each.taken / each.offered)
        for each in counts
        if each.taken and each.actual != each.taken_for
    ]
    return sorted(rows, key=lambda row: -row.share)[:_MOST]
