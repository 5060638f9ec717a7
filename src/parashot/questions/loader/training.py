"""The loader inside the step: ways to train that differ in backend and workers alone.

All replicas train by DDP, each rank with its share of the workers, which work on the same cores. Where there
is one replica, or no DDP, one process trains on all cores or one GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from parashot.hardware import usable_threads
from parashot.parallel.context import Placement, resolve_placement
from parashot.parallel.registry import STRATEGIES, step_options, unsupported_reason
from parashot.params import Params
from parashot.questions.ways.records import EpisodeWay, Loading
from parashot.tasks.relation import RelationTask


def ways_of_loading(params: Params, packed: Path) -> list[EpisodeWay]:
    """Every backend with every number of workers of `params.loader.bench`."""
    strategy, placement = who_trains(params, packed)
    ranks = STRATEGIES[strategy].processes(placement.replicas)
    return [
        EpisodeWay(
            way=loading.name,
            strategy=strategy,
            replicas=placement.replicas,
            threads_per_replica=placement.threads_per_replica,
            batchsz=params.train.batchsz,
            backend=loading.backend,
            workers=loading.workers,
            pairing=params.model.pairing,
            precision=params.train.precision,
            compile=params.train.compile,
        )
        for loading in loadings(params, ranks)
    ]


def who_trains(params: Params, packed: Path) -> tuple[str, Placement]:
    """DDP on all replicas where it can run here, else one replica."""
    placement = resolve_placement(params.parallel)
    fitted = placement.for_batch(params.train.batchsz)
    task, options = RelationTask(params, packed), step_options(params.train)
    reason = params.parallel.switched_off("ddp") or unsupported_reason(
        "ddp", task, options, fitted, params.parallel, torch.cuda.device_count()
    )
    if fitted.replicas > 1 and not reason:
        return "ddp", fitted
    return "serial", placement.on_all_cores()


def loadings(params: Params, ranks: int) -> Iterator[Loading]:
    """Backends and workers of the grid; `auto`: 0, one for each rank, T/2 and T of T hardware threads.

    More than T would take turns on cores that train, and with less than a rank each some ranks had none.
    `resident` has nothing for workers to do.
    """
    bench, threads = params.loader.bench, usable_threads()
    counts: Sequence[int] = sorted({0, ranks, max(ranks, threads // 2), max(ranks, threads)})
    if bench.workers != "auto":
        counts = sorted(bench.workers)
    for backend in bench.backends:
        for workers in [0] if backend == "resident" else counts:
            yield Loading(backend, workers)
