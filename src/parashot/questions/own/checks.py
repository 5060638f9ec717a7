"""Checks of the user's training: do all strategies compute the gradient of one process, of all parameters?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from parashot.errors import PeerError, UsageError, one_line
from parashot.parallel.context import Context, control_group, resolve_placement, wait_for_all
from parashot.parallel.exchange import from_all_ranks
from parashot.parallel.launch import launch
from parashot.parallel.registry import STRATEGIES, build_strategy
from parashot.parallel.strategy import StepOptions
from parashot.params import ParallelParams
from parashot.questions.own.records import GradientCheck, SkippedWay
from parashot.questions.strategies.equality import base_gradient, difference, gradient
from parashot.questions.ways.measure import for_ways
from parashot.questions.ways.records import Way
from parashot.tasks.own import OwnTask

SAME = 1e-6
"""Largest relative difference of float64 gradients that is rounding: sums in another order."""


@dataclass(frozen=True)
class FirstStep:
    """What one step by one process shows; unused: names of parameters that get no gradient."""

    unused: tuple[str, ...]
    has_batch_norm: bool


@dataclass(frozen=True)
class Checked:
    """What the checks found, what that means in words, and `parallel` as this network needs it.

    skipped: strategies that cannot train this network.
    """

    gradients: tuple[GradientCheck, ...]
    skipped: tuple[SkippedWay, ...]
    warnings: tuple[str, ...]
    parallel: ParallelParams


def check_own(task: OwnTask, parallel: ParallelParams, ways: Sequence[Way]) -> Checked:
    """Check a training before it is timed. Raises `UsageError` where its first step is not finite."""
    placement, processes = for_ways(ways, resolve_placement(parallel))
    first = launch(first_step, placement.on_all_cores(), 1, task, parallel)
    assert first is not None  # this is no rank of torchrun
    if first.unused:
        parallel = replace(parallel, ddp=replace(parallel.ddp, find_unused_parameters=True))
    found = launch(check_rank, placement, processes, task, parallel, tuple(ways)) or []
    gradients = tuple(each for each in found if isinstance(each, GradientCheck))
    skipped = tuple(each for each in found if isinstance(each, SkippedWay))
    return Checked(gradients, skipped, tuple(in_words(first, gradients)), parallel)


def first_step(context: Context, task: OwnTask, parallel: ParallelParams) -> FirstStep:
    """Train one step by one process. Raises `UsageError` where its loss or gradient is not finite."""
    strategy = build_strategy("serial", task, StepOptions(), context, parallel)
    plan = strategy.plan(task.batchsz, task.batchsz, context)
    (batch,) = task.ready_batches(plan, 1, context)
    strategy.network.train()
    loss, _, nonfinite = strategy.step(batch).tolist()
    if nonfinite or not math.isfinite(loss):
        raise UsageError(
            f"{task.file}: NaN or infinity in the first step, loss {loss / task.batchsz:g}; {task.remedy}"
        )
    named = strategy.network.named_parameters()
    unused = tuple(name for name, each in named if each.requires_grad and each.grad is None)
    has_batch_norm = any(isinstance(each, _BatchNorm) for each in strategy.network.modules())
    strategy.close()
    return FirstStep(unused, has_batch_norm)


def check_rank(
    context: Context, task: OwnTask, parallel: ParallelParams, ways: Sequence[Way]
) -> list[GradientCheck | SkippedWay]:
    """Compare the gradient of each strategy with that of one process, in float64 and without dropout.

    A strategy that raises an error, on all ranks alike, is skipped.
    """
    torch.set_num_threads(context.placement.threads_per_replica)
    control, exact = control_group(context), replace(task, dropout=False)
    base = base_gradient("serial", exact, context.alone(), parallel) if context.is_main else {}
    found: list[GradientCheck | SkippedWay] = []
    for way in {each.strategy: each for each in ways if each.strategy != "serial"}.values():
        wait_for_all(control)
        mine, reason = context.taking_part(STRATEGIES[way.strategy].processes(way.replicas)), ""
        if mine is not None:
            try:
                moved = gradient(way.strategy, exact, mine, parallel)
            except PeerError:
                raise
            except Exception as error:
                reason = one_line(error)
        if reason := next(filter(None, from_all_ranks(reason, context, control)), ""):
            found.append(SkippedWay(way.strategy, reason))
        elif context.is_main:
            found.append(GradientCheck(way.strategy, difference(moved, base)))
    return found


def in_words(first: FirstStep, checks: Sequence[GradientCheck]) -> list[str]:
    """What the user should know; nothing where all is well."""
    said = []
    if first.unused:
        count = len(first.unused)
        said.append(
            f"{count} parameters get no gradient, the first of them {first.unused[0]}: "
            "DistributedDataParallel needs find_unused_parameters=True, as it has here"
        )
    differing = [each.strategy for each in checks if each.difference > SAME]
    if differing:
        cause = (
            "batch norm takes each replica's share by itself (torch.nn.SyncBatchNorm, on GPUs, does not)"
            if first.has_batch_norm
            else "the loss is no mean over the samples of a batch, or it depends on more than its samples"
        )
        said.append(f"the gradient by {', '.join(differing)} is not that of one process: {cause}")
    return said
