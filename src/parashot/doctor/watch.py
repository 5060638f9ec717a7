"""How long the loop of any training script waits for its data.

for batch in parashot.watch(loader):
    ...
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter
from typing import TypeVar

from parashot.questions.text import counted, percent, seconds

T = TypeVar("T")

MUCH, LITTLE = 0.2, 0.05
"""Shares of a step's time: above the one the loader is the bottleneck, below the other computing is."""


def watch(
    loader: Iterable[T], every: int | None = None, tell: Callable[[str], object] = print
) -> Iterator[T]:
    """Iterate over `loader`; after the loop, and after `every` steps, say how long a step waits for data.

    Two lines go to `tell`: the share of the time, and what to try. Where an MLflow run is active it gets them
    as the metrics `step_seconds` and `waiting_share`. On a GPU what computes is started, not waited for: a
    wait that the device does not notice counts as well.
    """
    steps, total, waiting = 0, 0.0, 0.0  # without the first batch, for which workers start
    begin = asked = 0.0
    try:
        for steps, batch in enumerate(loader):
            got = perf_counter()
            if steps:
                total += got - begin
                waiting += got - asked
                if every and steps % every == 0:
                    _report(steps, total, waiting, loader, tell)
            begin = perf_counter()
            yield batch
            asked = perf_counter()
    finally:  # the loop may end early
        if steps and not (every and steps % every == 0):
            _report(steps, total, waiting, loader, tell)


def _report(steps: int, total: float, waiting: float, loader: object, tell: Callable[[str], object]) -> None:
    step, share = total / steps, waiting / total
    tell(
        f"a step took {seconds(step)}, of which {percent(share, 0)} waiting for data "
        f"({counted(steps, 'step')})"
    )
    tell(to_try(share, getattr(loader, "num_workers", None)))
    mlflow = sys.modules.get("mlflow")  # a script that has not imported it has no active run
    if mlflow is not None and mlflow.active_run() is not None:
        mlflow.log_metrics({"step_seconds": step, "waiting_share": share})


def to_try(share: float, workers: int | None) -> str:
    """What is the bottleneck, and what to try; workers: of the loader, None where it is no DataLoader."""
    if share < LITTLE:
        return (
            f"computing is the bottleneck: a faster loader would save {percent(share, 0)} of a step at most"
        )
    bottleneck = "the loader is the bottleneck" if share > MUCH else "the loader costs a part of each step"
    if workers is None:
        return f"{bottleneck}: read in a DataLoader with num_workers, or ahead of the training"
    if workers == 0:
        return f"{bottleneck}: try num_workers=1 or more; none are used"
    return f"{bottleneck}: try more than num_workers={workers}, a larger prefetch_factor, or cheaper decoding"
