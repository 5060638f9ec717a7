"""Strategies ready to be timed, with their batches in memory or as their loaders bring them."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from itertools import islice

import torch

from parashot.hardware import tree_memory_bytes
from parashot.parallel.context import Context
from parashot.parallel.registry import build_strategy
from parashot.parallel.strategy import StepOptions, Strategy
from parashot.params import ParallelParams, StrategyBenchParams
from parashot.task import Batch, Plan, Task, even_share
from parashot.train.loop import synchronise, train_steps

MOST_STEPS = 200
"""Of a block, however fast they are."""

LOADED_STEPS = 3
"""Of a block with loader workers, at least: they are started for each, and their batches come in bursts."""


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

    def step_seconds(self, bench: StrategyBenchParams) -> float:
        """Warm up; return the seconds of one more step, which belongs to no result."""
        self.seconds(bench.warmup_steps)
        return self.seconds(1)


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


@dataclass(frozen=True)
class LoadedSteps:
    """Training steps with their loading, on one rank.

    waiting_seconds: part of `seconds` without a batch. memory_bytes: of this rank's process tree, above what
    it was before the loader was made.
    """

    seconds: float
    waiting_seconds: float
    memory_bytes: int


def steps_with_loading(
    strategy: Strategy, task: Task, steps: int, *, threads: int, in_advance: int
) -> LoadedSteps:
    """Train `steps` steps by the project's own loop, on batches as the loader of `task` brings them.

    in_advance: batches that workers have ready before anyone asks. They are taken, and a step is trained,
    before the clock starts, and as many lie ahead of the last one: the rate is that of a long training.
    """
    torch.set_num_threads(threads)
    before, batchsz, context = tree_memory_bytes(os.getpid()), task.batchsz, strategy.context
    taken = 1 + in_advance if in_advance else 0  # the first, and those that lie ready by then
    # one more at least: on a GPU a batch is loaded before the one ahead of it is trained on
    whole = strategy.plan((taken + 1 + steps + max(1, in_advance)) * batchsz, batchsz, context)
    batches = task.batches(whole, context)
    for _ in range(taken):
        next(batches)
    strategy.step(next(batches))
    timed = train_steps(strategy, islice(batches, steps), Plan(steps * batchsz, batchsz))
    memory = tree_memory_bytes(os.getpid()) - before
    del batches  # ends its workers
    return LoadedSteps(timed.seconds, sum(timed.data_seconds), max(0, memory))


def steps_of_block(step_seconds: float, bench: StrategyBenchParams) -> int:
    """Steps of a block: as many as `bench` wants, and more where these would not last long enough."""
    return max(bench.steps, min(MOST_STEPS, math.ceil(bench.seconds / step_seconds)))


def steps_of_loaded_block(step_seconds: float, bench: StrategyBenchParams, *, workers: bool) -> int:
    """Steps of a block with a loader, which has workers or none."""
    return max(LOADED_STEPS if workers else 1, steps_of_block(step_seconds, bench))


def rounds_of_launch(rounds: int, launch: int, launches: int) -> range:
    """Rounds of one launch of the processes, which share all `rounds` out."""
    return range(rounds)[even_share(rounds, launch, launches)]
