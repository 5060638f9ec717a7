"""Strategies ready to be timed, and the rounds in which what is compared is timed: A B C A B C ..."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch

from parashot.parallel.context import Context
from parashot.parallel.registry import build_strategy
from parashot.parallel.strategy import StepOptions, Strategy
from parashot.params import ParallelParams
from parashot.task import Batch, Task
from parashot.train.loop import synchronise

Key = TypeVar("Key")
T = TypeVar("T")


@dataclass
class TimedStrategy:
    """A strategy with its batches in memory, and the threads it may use on this rank.

    The clock stops when the device is done.
    """

    strategy: Strategy
    batches: list[Batch]
    threads: int

    def seconds(self, steps: int) -> float:
        """Wall time of `steps` steps over the batches in turn.

        A step is the inputs' way to the device, normalisation, forward, backward, exchange and optimizer.
        """
        torch.set_num_threads(self.threads)
        synchronise(self.strategy.context)
        begin = time.perf_counter()
        for step in range(steps):
            self.strategy.step(self.batches[step % len(self.batches)])
        synchronise(self.strategy.context)
        return time.perf_counter() - begin


def timed_strategy(
    name: str,
    task: Task,
    options: StepOptions,
    context: Context,
    parallel: ParallelParams,
    *,
    batchsz: int,
    steps: int = 1,
    threads: int | None = None,
) -> TimedStrategy:
    """Make a strategy with its batches of the first `steps` steps of `batchsz` items ready to be timed."""
    strategy = build_strategy(name, task, options, context, parallel)
    batches = task.ready_batches(strategy.plan(steps * batchsz, batchsz, context), steps, context)
    return TimedStrategy(strategy, batches, threads or context.placement.threads_per_replica)


def in_turn(
    blocks: Mapping[Key, Callable[[], float]], rounds: int, warmups: int = 1
) -> dict[Key, list[float]]:
    """Measure every block in each round: item i of all lists is of round i; `warmups` rounds are left out."""
    measured: dict[Key, list[float]] = {key: [] for key in blocks}
    for number in range(-warmups, rounds):
        for key, block in blocks.items():
            value = block()
            if number >= 0:
                measured[key].append(value)
    return measured
