"""Are copies to the device hidden behind compute? A batch's copy, a step, and both at once, in turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from parashot.data.batches import Batch
from parashot.parallel.context import Context, alone
from parashot.params import Params
from parashot.questions.statistics import Resampling, ratio_interval
from parashot.questions.timed import in_turn
from parashot.train.assemble import new_strategy, ready_batches
from parashot.train.loop import synchronise

_CALLS = 3
"""Copies and steps of a block."""


@dataclass(frozen=True)
class OverlapTimes:
    """Seconds of copying alone, of computing alone, and of both at once, round by round."""

    copying: list[float]
    computing: list[float]
    both: list[float]

    def metrics(self, resampling: Resampling) -> dict[str, float]:
        """One after the other over both at once, with its interval: above 1, something is hidden."""
        apart = [copy + step for copy, step in zip(self.copying, self.computing, strict=True)]
        ratio = ratio_interval(apart, self.both, resampling)
        return {
            "copy_overlap_ratio": ratio.value,
            "copy_overlap_ratio_low": ratio.low,
            "copy_overlap_ratio_high": ratio.high,
        }


def measure_overlap(context: Context, params: Params, packed: Path) -> OverlapTimes | None:
    """Time one replica's steps and the copies of its batches, from pinned memory on a stream of their own.

    None on a CPU, where nothing is copied.
    """
    if context.device.type != "cuda":
        return None
    mine = alone(context)
    strategy = new_strategy("serial", params, mine)
    waiting = _pinned(ready_batches(params, packed, strategy, params.train.batchsz, 1)[0])
    there = waiting.to(context.device)
    aside = torch.cuda.Stream(context.device)

    def copy() -> None:
        with torch.cuda.stream(aside):
            waiting.to(context.device)

    def compute() -> None:
        strategy.step(there)

    def both() -> None:
        copy()
        compute()

    calls = {"copying": copy, "computing": compute, "both": both}
    blocks = {name: partial(_seconds, call, lambda: synchronise(mine)) for name, call in calls.items()}
    return OverlapTimes(**in_turn(blocks, params.parallel.bench.blocks))


def _seconds(call: Callable[[], None], finish: Callable[[], None]) -> float:
    """Of a block of calls, from an idle device to an idle device."""
    finish()
    begin = time.perf_counter()
    for _ in range(_CALLS):
        call()
    finish()
    return time.perf_counter() - begin


def _pinned(batch: Batch) -> Batch:
    return batch.with_tensors(*(each.pin_memory() for each in batch.tensors))
