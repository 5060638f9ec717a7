"""Few-shot accuracy on the test split, and the relation head's margin over a cosine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from parashot.train.records import TaskAccuracy


@dataclass(frozen=True)
class TaskRow(TaskAccuracy):
    """Episodes of one shape, with a verdict on the paired margin over the cosine of the same embedding.

    A head that begins as a residual on the cosine has margin 0 without having learned: only an interval
    above 0 is a `gain`; one below is a `loss`, any other `no gain`.
    """

    verdict: str


def task_rows(tasks: Iterable[TaskAccuracy]) -> list[TaskRow]:
    """Judge every task."""
    return [TaskRow(**asdict(task), verdict=_verdict(task)) for task in tasks]


def _verdict(task: TaskAccuracy) -> str:
    if task.margin - task.margin_ci95 > 0:
        return "gain"
    return "loss" if task.margin + task.margin_ci95 < 0 else "no gain"
