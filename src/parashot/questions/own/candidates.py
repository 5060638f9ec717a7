"""Ways to train that are tried: strategies that can run here × workers × precisions, then refinements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import torch
from torch import nn

from parashot.allocator import why_nothing_is_kept
from parashot.errors import TaskError
from parashot.hardware import usable_threads
from parashot.parallel.abilities import compile_modes, precisions
from parashot.parallel.context import Placement, resolve_placement
from parashot.parallel.registry import STRATEGIES, unsupported_reason
from parashot.parallel.strategy import StepOptions
from parashot.params import ParallelParams
from parashot.questions.own.records import EXTRAS, PLAIN, OwnWay
from parashot.questions.ways.records import SkippedWay, WayBlock
from parashot.questions.ways.rows import step_seconds_by_way
from parashot.task import Task
from parashot.tasks.own import OwnTask, own_default


@dataclass
class Candidates:
    """Ways to try, the default first, and what is not tried."""

    ways: list[OwnWay]
    skipped: list[SkippedWay] = field(default_factory=list)


def candidates(task: OwnTask, parallel: ParallelParams) -> Candidates:
    """List the ways to train `task` on this machine. Strategies that cut the network up are left out.

    All have the prefetch and the pinned memory of the file's default.
    Raises `TaskError` where the file's default cannot run here.
    """
    placement = resolve_placement(parallel)
    able = own_precisions(placement.device_type)
    plain = _default(task, parallel, placement, able)
    found = Candidates([plain])
    for name, strategy in STRATEGIES.items():
        if not strategy.shares_items:
            continue
        fitted = _fitted(name, placement, task)
        if reason := _unable(name, task, parallel, fitted):
            found.skipped.append(SkippedWay(name, reason))
            continue
        for workers in worker_counts(strategy.processes(fitted.replicas)):
            for precision in able:
                way = _way(f"{name}-{workers}-{precision}", name, fitted, task, workers, precision)
                way = replace(way, prefetch=plain.prefetch, pin_memory=plain.pin_memory)
                is_default = replace(way, way=PLAIN) == plain
                if not is_default and (strategy.scales or precision != "fp16"):
                    found.ways.append(way)
    if placement.device_type == "cpu" and (reason := why_nothing_is_kept()):
        found.skipped.append(SkippedWay("keeping freed memory", reason))
    return found


def plain_way(task: Task, placement: Placement) -> OwnWay:
    """One process on all cores or one GPU, no workers, fp32."""
    return _way(PLAIN, "serial", placement.on_all_cores(), task, 0, "fp32")


def _default(task: OwnTask, parallel: ParallelParams, placement: Placement, able: Sequence[str]) -> OwnWay:
    """How the user trains now, by what his file says: the plain way where it says nothing."""
    said = own_default(task.file)
    shared = [name for name, strategy in STRATEGIES.items() if strategy.shares_items]
    for key, value, allowed in (("strategy", said.strategy, shared), ("precision", said.precision, able)):
        if value not in allowed:
            raise TaskError(f"{task.file}: default: {key} is {value!r}; here it can be {', '.join(allowed)}")
    fitted = _fitted(said.strategy, placement, task)
    reason = _unable(said.strategy, task, parallel, fitted)
    if said.precision == "fp16" and not STRATEGIES[said.strategy].scales:
        reason = "it does not scale losses, as fp16 needs"
    if reason:
        raise TaskError(f"{task.file}: default: {said.strategy} is not possible here: {reason}")
    way = _way(PLAIN, said.strategy, fitted, task, said.workers, said.precision)
    return replace(way, prefetch=said.prefetch, pin_memory=said.pin_memory)


def _fitted(name: str, placement: Placement, task: OwnTask) -> Placement:
    """Replicas of a strategy, which share all cores."""
    if name == "serial":
        return placement.on_all_cores()
    fitted = placement.for_batch(task.batchsz)
    return replace(fitted, threads_per_replica=max(1, fitted.cores // fitted.replicas))


def _unable(name: str, task: OwnTask, parallel: ParallelParams, fitted: Placement) -> str:
    """Reason why a strategy cannot be tried, or why nobody could act on the result; or an empty text."""
    if reason := unsupported_reason(name, task, StepOptions(), fitted, parallel):
        return reason
    if name != "serial" and fitted.replicas == 1:
        return "one replica has nobody to share with"
    if name == "dp" and fitted.device_type == "cpu":
        return "torch.nn.DataParallel spreads a batch over GPUs only"
    if name == "dp" and not task.cuttable:
        return "torch.nn.DataParallel cuts batches, and in these not all tensors have a row for each sample"
    return ""


def worker_counts(ranks: int) -> Iterator[int]:
    """Numbers of workers of a machine: none, one for each rank, T/2 and T of T hardware threads.

    As many for every rank.
    """
    threads = usable_threads()
    yield from sorted({0, *(ranks * max(1, count // ranks) for count in (ranks, threads // 2, threads))})


def own_precisions(device_type: str) -> list[str]:
    """Precisions the device computes in, fp32 first."""
    able = [str(each) for each in precisions(device_type)]
    if device_type == "cuda":
        able += ["fp16"]
        if torch.cuda.get_device_capability()[0] >= 8:
            able.insert(1, "tf32")
    return able


def refinements(way: OwnWay, task: Task, tried: Sequence[OwnWay], *, compiling: bool) -> list[OwnWay]:
    """The same way with one thing changed: what could help this network, and this strategy allows.

    What the user's file sets already is left out. tried: ways that the search has timed.
    """
    found = []
    if way.strategy != "fsdp":  # it shares weights out in plain memory, and so the optimizer's work
        network = task.network()
        if _takes_channels_last(network):
            found.append(renamed(way, channels_last=True))
        if _takes_fused(task.optimizer(network)):
            found.append(renamed(way, fused=True))
    found += [renamed(way, workers=count) for count in _other_worker_counts(way, tried)]
    if way.workers:
        if way.device == "cuda" and not way.pin_memory:
            found.append(renamed(way, pin_memory=True))
        found.append(renamed(way, prefetch=2 * way.prefetch))
    if compiling and STRATEGIES[way.strategy].compiles and "default" in compile_modes(way.device):
        found.append(renamed(way, compile="default"))
    return found


def _takes_channels_last(network: nn.Module) -> bool:
    """Whether it has convolutions of images, in another order, and no others, which `Module.to` refuses."""
    images = [each for each in network.parameters() if each.dim() == 4]
    others = any(each.dim() == 5 for each in (*network.parameters(), *network.buffers()))
    return not others and not all(each.is_contiguous(memory_format=torch.channels_last) for each in images)


def _takes_fused(optimizer: torch.optim.Optimizer) -> bool:
    """Whether it can be fused, and is not; with `foreach` or `differentiable` it cannot."""
    options: Mapping[str, Any] = getattr(optimizer, "defaults", {})
    taken = any(options.get(each) for each in ("fused", "foreach", "differentiable"))
    return "fused" in options and not taken


def _other_worker_counts(way: OwnWay, tried: Sequence[OwnWay]) -> list[int]:
    """Half and twice as many workers, where the search has not tried them; one for each rank at least."""
    ranks, threads = STRATEGIES[way.strategy].processes(way.replicas), usable_threads()
    counts = (ranks * (way.workers // 2 // ranks), 2 * way.workers)  # as many for every rank
    of_search = {each.workers for each in tried if replace(each, way=way.way, workers=way.workers) == way}
    return [each for each in counts if ranks <= each <= threads and each not in of_search]


WORTH = 0.02
"""Least gain of a change that is kept. The finals time all that is kept together, with intervals."""


def refined(way: OwnWay, changed: Sequence[OwnWay], blocks: Sequence[WayBlock]) -> OwnWay:
    """`way` with every change that made it faster, judged by the median over rounds.

    Of other numbers of workers the fastest is taken.
    """
    seconds = step_seconds_by_way(blocks)
    base, gains = seconds[way.way], dict[OwnWay, float]()
    for each in changed:
        own = seconds[each.way]
        gains[each] = median(base[number] / own[number] for number in base.keys() & own.keys())
    changes = dict[str, object]()
    for each in sorted(gains, key=gains.__getitem__):  # the fastest last
        if gains[each] > 1 + WORTH:
            values = {name: getattr(each, name) for name in ("workers", "prefetch", *EXTRAS)}
            changes |= {name: value for name, value in values.items() if value != getattr(way, name)}
    return renamed(way, **changes) if changes else way


def renamed(way: OwnWay, **changes: object) -> OwnWay:
    """`way` with changes, which its name tells as well."""
    said = [name if value is True else f"{name}-{value}" for name, value in changes.items()]
    # the type checker cannot tell which field each change is of; the record checks them
    return replace(way, way="-".join([way.way, *said]), **changes)  # type: ignore[arg-type]


def _way(name: str, strategy: str, placement: Placement, task: Task, workers: int, precision: str) -> OwnWay:
    replicas, threads = placement.replicas, placement.threads_per_replica
    device = placement.device_type
    return OwnWay(name, strategy, replicas, threads, task.batchsz, workers, precision, "none", device)
