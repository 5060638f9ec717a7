"""Ways to train that are tried: strategies that can run here × loader workers × precisions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from parashot.hardware import usable_threads
from parashot.parallel.abilities import precisions
from parashot.parallel.context import Placement, resolve_placement
from parashot.parallel.registry import STRATEGIES, unsupported_reason
from parashot.parallel.strategy import StepOptions
from parashot.params import ParallelParams
from parashot.questions.own.records import PLAIN, SkippedWay
from parashot.questions.ways.records import Way
from parashot.task import Task
from parashot.tasks.own import OwnTask


@dataclass
class Candidates:
    """Ways to try, the default first, and strategies that are not."""

    ways: list[Way]
    skipped: list[SkippedWay] = field(default_factory=list)


def candidates(task: OwnTask, parallel: ParallelParams) -> Candidates:
    """List the ways to train `task` on this machine. Strategies that cut the network up are left out."""
    placement = resolve_placement(parallel)
    able = precisions(placement.device_type)
    alone = placement.on_all_cores()
    found = Candidates([_way(PLAIN, "serial", alone, task, 0, "fp32")])
    for name, strategy in STRATEGIES.items():
        if not strategy.shares_items:
            continue
        fitted = alone if name == "serial" else placement.for_batch(task.batchsz)
        reason = unsupported_reason(
            name, task, StepOptions(), fitted, parallel, torch.cuda.device_count()
        ) or _useless(name, fitted, task)
        if reason:
            found.skipped.append(SkippedWay(name, reason))
            continue
        for workers in worker_counts(strategy.processes(fitted.replicas)):
            for precision in able:
                if (name, workers, precision) != ("serial", 0, "fp32"):  # the default
                    way = f"{name}-{workers}-{precision}"
                    found.ways.append(_way(way, name, fitted, task, workers, precision))
    return found


def worker_counts(ranks: int) -> Iterator[int]:
    """Numbers of workers of a machine: none, one for each rank, T/2 and T of T hardware threads."""
    threads = usable_threads()
    yield from sorted({0, ranks, max(ranks, threads // 2), max(ranks, threads)})


def _useless(name: str, placement: Placement, task: OwnTask) -> str:
    """Reason why nobody could act on such a recommendation, or an empty text."""
    if name != "serial" and placement.replicas == 1:
        return "one replica has nobody to share with"
    if name == "dp" and placement.device_type == "cpu":
        return "torch.nn.DataParallel spreads a batch over GPUs only"
    if name == "dp" and not task.cuttable:
        return "torch.nn.DataParallel cuts batches, and in these not all tensors have a row for each sample"
    return ""


def _way(name: str, strategy: str, placement: Placement, task: Task, workers: int, precision: str) -> Way:
    return Way(
        way=name,
        strategy=strategy,
        replicas=placement.replicas,
        threads_per_replica=placement.threads_per_replica,
        batchsz=task.batchsz,
        workers=workers,
        precision=precision,
        compile="none",
    )
