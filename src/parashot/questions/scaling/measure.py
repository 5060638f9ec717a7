"""Measurements that the cost model is fitted to: steps of one replica by size, all-reduces by their bytes.

Both are timed in the rounds of the strategies that the model is checked against, so that a machine that
grows slower meanwhile misleads neither. Steps are taken alone, and while every other rank steps too, which
separates contention for the machine from communication; then the slowest counts: a sum waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import torch
from torch import distributed as dist

from parashot.parallel.context import Context
from parashot.parallel.exchange import from_all_ranks
from parashot.parallel.strategy import StepOptions
from parashot.params import ParallelParams
from parashot.questions.strategies.records import CostMessage, CostStep
from parashot.questions.timed import TimedStrategy, timed_strategy
from parashot.task import Task
from parashot.train.loop import synchronise

SIZES = 4
"""Numbers of items that are timed: batchsz, its half, its quarter and its eighth."""

MESSAGE_BYTES = tuple(2**power for power in (12, 15, 18, 20, 22, 24))
"""4 KiB to 16 MiB: from what is nearly all latency to what is nearly all bandwidth."""

_BLOCK_BYTES = 4 * 2**20
_MOST_CALLS = 20


def ready_sizes(
    context: Context, task: Task, options: StepOptions, parallel: ParallelParams
) -> dict[int, TimedStrategy]:
    """Make serial steps of each number of items ready to be timed on this rank."""
    sizes, alone = local_sizes(task.batchsz), context.alone()
    first = timed_strategy("serial", task, options, alone, parallel, batchsz=sizes[0])
    ready = {sizes[0]: first}
    for size in sizes[1:]:
        (batch,) = task.ready_batches(first.strategy.plan(size, size, alone), 1, alone)
        ready[size] = TimedStrategy(first.strategy, batch, first.threads)
    return ready


def local_sizes(batchsz: int) -> list[int]:
    """Numbers of items, `batchsz` the largest unless that leaves fewer than three."""
    sizes = {-(-batchsz // 2**halvings) for halvings in range(SIZES)}
    return sorted(sizes if len(sizes) > 2 else {1, 2, 3})


def time_round(
    context: Context,
    timed: Mapping[int, TimedStrategy],
    messages: Mapping[int, torch.Tensor],
    number: int,
) -> tuple[list[CostStep], list[CostMessage]]:
    """Time a step of every number of episodes, alone and with all ranks busy, and every message."""
    steps, summed = list[CostStep](), list[CostMessage]()
    for size, one in timed.items():
        context.wait_for_all()
        if context.is_main:
            steps.append(CostStep(number, 1, size, 1, one.seconds(1)))
        context.wait_for_all()
        if context.world_size > 1:
            slowest = max(from_all_ranks(one.seconds(1), context, patient=True))
            steps.append(CostStep(number, context.world_size, size, 1, slowest))
    for size, message in messages.items():
        calls = max(1, min(_MOST_CALLS, _BLOCK_BYTES // size))
        context.wait_for_all()
        synchronise(context)
        begin = time.perf_counter()
        for _ in range(calls):
            dist.all_reduce(message, group=context.group)
        synchronise(context)
        seconds = time.perf_counter() - begin
        summed.append(CostMessage(number, context.world_size, size, calls, seconds))
    return steps, summed


def new_messages(context: Context) -> dict[int, torch.Tensor]:
    """A message of each size, zeros, which stay zeros however often they are summed; none for a lone rank."""
    if context.world_size == 1:
        return {}
    return {size: torch.zeros(size // 4, device=context.device) for size in MESSAGE_BYTES}
