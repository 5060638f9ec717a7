"""Strategies ready to be timed, with their batches in memory or as their loaders bring them."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import torch

from parashot.hardware import tree_memory_bytes
from parashot.parallel.context import Context
from parashot.parallel.exchange import from_all_ranks
from parashot.parallel.registry import build_strategy
from parashot.parallel.strategy import StepOptions, Strategy
from parashot.params import ParallelParams, StrategyBenchParams
from parashot.task import Batch, Plan, Task, even_share
from parashot.train.loop import synchronise, train_steps

T = TypeVar("T")

MOST_STEPS = 200
"""Of a block, however fast they are."""

WARMUP_STEPS = 2
"""Of each strategy, untimed, before its first block."""


@dataclass
class TimedStrategy:
    """A strategy with a batch in memory, and the threads it may use on this rank.

    The clock stops when the device is done.
    """

    strategy: Strategy
    batch: Batch
    threads: int

    def seconds(self, steps: int) -> float:
        """Wall time of `steps` steps.

        A step is the inputs' way to the device, normalisation, forward, backward, exchange and optimizer.
        """
        torch.set_num_threads(self.threads)
        synchronise(self.strategy.context)
        begin = time.perf_counter()
        for _ in range(steps):
            self.strategy.step(self.batch)
        synchronise(self.strategy.context)
        return time.perf_counter() - begin

    def step_seconds(self) -> float:
        """Warm up; return the seconds of one more step, which belongs to no result."""
        self.seconds(WARMUP_STEPS)
        return self.seconds(1)


def timed_strategy(
    name: str,
    task: Task,
    options: StepOptions,
    context: Context,
    parallel: ParallelParams,
    *,
    batchsz: int,
    threads: int | None = None,
) -> TimedStrategy:
    """Make a strategy with its batch of a step of `batchsz` items ready to be timed."""
    strategy = build_strategy(name, task, options, context, parallel)
    (batch,) = task.ready_batches(strategy.plan(batchsz, batchsz, context), 1, context)
    return TimedStrategy(strategy, batch, threads or context.placement.threads_per_replica)


@dataclass(frozen=True)
class LoadedSteps:
    """Training steps with their loading, on one rank.

    waiting_seconds: part of `seconds` without a batch. memory_bytes: of this rank's process tree, above what
    it was before the loader was made.
    """

    seconds: float
    waiting_seconds: float
    memory_bytes: int


def steps_before_the_clock(in_advance: int) -> int:
    """Steps of `steps_with_loading` before those that are timed: the first, those ready by then, one more."""
    return 2 + in_advance if in_advance else 1


def steps_with_loading(
    strategy: Strategy, task: Task, steps: int, *, threads: int, in_advance: int, first: int
) -> LoadedSteps:
    """Train `steps` steps by the project's own loop, on batches as the loader of `task` brings them.

    in_advance: batches that workers have ready before anyone asks. They are taken, and a step is trained,
    before the clock starts, and as many lie ahead of the last one: the rate is that of a long training.
    first: step of a training, at least `steps_before_the_clock`, whose batch is the first that is timed.
    """
    torch.set_num_threads(threads)
    before, batchsz, context = tree_memory_bytes(os.getpid()), task.batchsz, strategy.context
    # one more at least: on a GPU a batch is loaded before the one ahead of it is trained on
    whole = strategy.plan((first + steps + max(1, in_advance)) * batchsz, batchsz, context)
    untimed = steps_before_the_clock(in_advance)
    batches = task.batches(whole, context, first - untimed)
    for _ in range(untimed - 1):
        next(batches)
    strategy.step(next(batches))
    timed = train_steps(strategy, islice(batches, steps), Plan(steps * batchsz, batchsz))
    memory = tree_memory_bytes(os.getpid()) - before
    del batches  # ends its workers
    return LoadedSteps(timed.seconds, sum(timed.data_seconds), max(0, memory))


def steps_of_block(step_seconds: float, bench: StrategyBenchParams) -> int:
    """Steps of a block: as many as it takes for the block to last long enough."""
    return max(1, min(MOST_STEPS, math.ceil(bench.seconds / step_seconds)))


def steps_of_blocks(
    context: Context, timed: Mapping[T, TimedStrategy | None], bench: StrategyBenchParams
) -> dict[T, int]:
    """Warm every setting up; return the steps of its blocks, by the main rank's clock alike on all ranks.

    None: a setting that this rank takes no part in. The main rank takes part in every one.
    """
    steps = {}
    for setting, entry in timed.items():
        context.wait_for_all()
        if entry is not None:
            steps[setting] = steps_of_block(entry.step_seconds(), bench)
    main: dict[T, int] = from_all_ranks(steps, context, patient=True)[0]
    return main


def rounds_of_launch(rounds: int, launch: int, launches: int) -> range:
    """Rounds of one launch of the processes, which share all `rounds` out."""
    return range(rounds)[even_share(rounds, launch, launches)]
