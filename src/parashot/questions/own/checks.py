"""Checks of the user's training: do all strategies compute the gradient of one process, of all parameters?

Beside the gradient: what is kept between steps (`graphs.py`), and the samples (`samples.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from textwrap import shorten
from weakref import ReferenceType

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from parashot.errors import PeerError, UsageError, one_line
from parashot.parallel.context import Context, control_group, resolve_placement, wait_for_all
from parashot.parallel.exchange import from_all_ranks
from parashot.parallel.launch import launch
from parashot.parallel.registry import STRATEGIES, build_strategy
from parashot.parallel.strategy import StepOptions
from parashot.params import ParallelParams
from parashot.questions.own.graphs import Mark, is_kept, marked
from parashot.questions.own.records import GradientCheck, SkippedWay
from parashot.questions.own.samples import digests, repeats_in_workers
from parashot.questions.strategies.equality import base_gradient, difference, gradient
from parashot.questions.ways.measure import for_ways
from parashot.questions.ways.records import Way
from parashot.tasks.own import OwnTask, own_errors

SAME = 1e-6
"""Largest relative difference of float64 gradients that is rounding: sums in another order."""

LONGEST_REASON = 200
"""Of a strategy that is skipped: torch prints whole networks in some messages."""

STEPS = 3
"""Steps by one process: a graph that is still there two steps later is kept for good."""


@dataclass(frozen=True)
class FirstStep:
    """What the first steps by one process show.

    unused: names of parameters that get no gradient. keeps_graph: whether the first step's is there later on.
    """

    unused: tuple[str, ...]
    has_batch_norm: bool
    keeps_graph: bool = False


@dataclass(frozen=True)
class Compared:
    """What ranks have in common.

    gradients: of each strategy but those that are skipped. repeats: whether one process computes the same
    gradient twice. same_samples: whether all ranks read the same ones at the same places.
    """

    gradients: list[GradientCheck] = field(default_factory=list)
    skipped: list[SkippedWay] = field(default_factory=list)
    repeats: bool = True
    same_samples: bool = True


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
    same_in_workers = repeats_in_workers(task)
    placement, processes = for_ways(ways, resolve_placement(parallel))
    first = launch(first_step, placement.on_all_cores(), 1, task, parallel)
    assert first is not None  # this is no rank of torchrun
    if first.unused:
        parallel = replace(parallel, ddp=replace(parallel.ddp, find_unused_parameters=True))
    compared = launch(check_rank, placement, processes, task, parallel, tuple(ways)) or Compared()
    said = in_words(first, compared, same_in_workers)
    return Checked(tuple(compared.gradients), tuple(compared.skipped), tuple(said), parallel)


def first_step(context: Context, task: OwnTask, parallel: ParallelParams) -> FirstStep:
    """Train a few steps by one process.

    Raises `UsageError` where the loss or the gradient of the first is not finite, or where a step fails.
    """
    marks: list[ReferenceType[Mark]] = []
    with own_errors(task.file):
        strategy = build_strategy("serial", task, StepOptions(), context, parallel)
        plan = strategy.plan(STEPS * task.batchsz, task.batchsz, context)
        batch, *later = task.ready_batches(plan, STEPS, context)
        strategy.network.train()
        hook = strategy.model.register_forward_hook(lambda module, data, losses: marks.extend(marked(losses)))
        loss, _, nonfinite = strategy.step(batch).tolist()
        hook.remove()
        if nonfinite or not math.isfinite(loss):
            raise UsageError(
                f"{task.file}: NaN or infinity in the first step, loss {loss / task.batchsz:g}; {task.remedy}"
            )
        named = strategy.network.named_parameters()
        unused = tuple(name for name, each in named if each.requires_grad and each.grad is None)
        for each in later:
            strategy.step(each)
    has_batch_norm = any(isinstance(each, _BatchNorm) for each in strategy.network.modules())
    strategy.close()
    return FirstStep(unused, has_batch_norm, is_kept(marks))


def check_rank(context: Context, task: OwnTask, parallel: ParallelParams, ways: Sequence[Way]) -> Compared:
    """Compare the gradient of each strategy with that of one process, in float64 and without dropout.

    A strategy that raises an error, on all ranks alike, is skipped.
    """
    torch.set_num_threads(context.placement.threads_per_replica)
    control, exact = control_group(context), replace(task, random=False)
    read = [each for each in from_all_ranks(digests(task), context, control) if each]
    base = base_gradient("serial", exact, context.alone(), parallel) if context.is_main else {}
    found, skipped = list[GradientCheck](), list[SkippedWay]()
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
            skipped.append(SkippedWay(way.strategy, shorten(reason, LONGEST_REASON, placeholder=" …")))
        elif context.is_main:
            found.append(GradientCheck(way.strategy, difference(moved, base)))
    repeats = not _differing(found) or _repeats(base, exact, context, parallel)
    return Compared(found, skipped, repeats, all(each == read[0] for each in read))


def _repeats(base: dict[str, Tensor], exact: OwnTask, context: Context, parallel: ParallelParams) -> bool:
    again = base_gradient("serial", exact, context.alone(), parallel)
    return difference(again, base) <= SAME


def _differing(checks: Sequence[GradientCheck]) -> list[str]:
    return [each.strategy for each in checks if each.difference > SAME]


def in_words(first: FirstStep, compared: Compared, same_in_workers: bool = False) -> list[str]:
    """What the user should know; nothing where all is well."""
    said = []
    if first.unused:
        count = len(first.unused)
        said.append(
            f"{count} parameters get no gradient, the first of them {first.unused[0]}: "
            "DistributedDataParallel needs find_unused_parameters=True, as it has here"
        )
    if first.keeps_graph:
        said.append(
            "the graph of a step is kept after it, so that memory grows in every step: "
            "use loss.item() or detach() for what is kept"
        )
    if same_in_workers:
        said.append(
            "samples are random in the same way in every worker, for a generator is copied into each; "
            "draw from torch, numpy.random or random, which PyTorch seeds, or seed it in worker_init_fn"
        )
    if not compared.same_samples:
        said.append(
            "dataset() returns other samples in another process, so that ranks read some twice and others "
            "never: sort them, or seed what shuffles them"
        )
    if differing := _differing(compared.gradients):
        said.append(
            f"the gradient by {', '.join(differing)} is not that of one process: {_cause(first, compared)}"
        )
    return said


def _cause(first: FirstStep, compared: Compared) -> str:
    """Why gradients differ, as far as it is known."""
    if not compared.same_samples:
        return "their samples are not the same"
    if not compared.repeats:
        return "one process does not compute the same twice either, for it draws random numbers"
    if first.has_batch_norm:
        return "batch norm takes each replica's share by itself (torch.nn.SyncBatchNorm, on GPUs, does not)"
    return "the loss is no mean over the samples of a batch, or it depends on more than its samples"
