"""Loader workers × backends: steps that train on what is loaded, and loading alone, the study's Table 2.

In training all replicas train by DDP, each rank with its share of the workers, which work on the same cores.
Where there is one replica, or no DDP, one process trains on all cores or one GPU.

Of loading alone a block makes a loader, takes its first batch, takes as many more as its workers had ready
before anyone asked (they would come for free), and only then times. Settings of a round run in random order.
"""

from __future__ import annotations

import math
import os
import resource
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import torch

from parashot.data.episode_dataset import Backend
from parashot.hardware import tree_memory_bytes, usable_threads
from parashot.parallel.context import Context, Placement, resolve_placement
from parashot.parallel.registry import STRATEGIES, step_options, unsupported_reason
from parashot.params import Params
from parashot.progress import Progress
from parashot.questions.loader.records import LoaderBlock, LoaderResults
from parashot.questions.loader.rows import loader_rows
from parashot.questions.runs import Setting, Stage
from parashot.questions.statistics import CONFIDENCE
from parashot.questions.ways.episodes import read_by, time_episode_ways
from parashot.questions.ways.records import PLAIN_LOADER, EpisodeWay, Loading
from parashot.questions.ways.rows import way_rows, way_settings
from parashot.records import Provenance
from parashot.task import Plan
from parashot.tasks.relation import RelationTask
from parashot.train.records import Choices

_ROUNDS_OF_WORKERS = 3
"""Workers deliver in turn: a block of less than a few turns would measure a burst, or the wait for one."""

_LEAST_BATCHES, _MOST_BATCHES = 2, 10_000
"""Of a block, however fast."""

_HERE = Context(0, 1, 0, 1, Placement("cpu", 1, 1, 1))


def bench_loaders(params: Params, packed: Path, out: Path, provenance: Provenance) -> None:
    """Measure the grid of `params.loader.bench` on the packed training split and write `out`."""
    stage = Stage("loader workers", "loader-bench", provenance)
    ways = ways_of_loading(params, packed)
    training = time_episode_ways(params, packed, ways, "loader-bench, in training")
    blocks = time_loaders(params, packed)  # last, when no server of ranks is being started beside it
    rows = way_rows(ways, training, PLAIN_LOADER.name, CONFIDENCE)
    settings = [*way_settings(rows, training, "training-"), *_settings(blocks)]
    stage.write(out, LoaderResults(tuple(blocks), tuple(ways), tuple(training)), settings)


# --- in training ------------------------------------------------------------------------------------------


def ways_of_loading(params: Params, packed: Path) -> list[EpisodeWay]:
    """Every backend with every number of workers of `params.loader.bench`, alike in all else."""
    strategy, placement = who_trains(params, packed)
    replicas, threads, batchsz = placement.replicas, placement.threads_per_replica, params.train.batchsz
    how = Choices(params.model.pairing, params.train.precision, params.train.compile)
    return [
        EpisodeWay.of(each.name, strategy, replicas, threads, batchsz, each, how)
        for each in loadings(params, STRATEGIES[strategy].processes(replicas))
    ]


def who_trains(params: Params, packed: Path) -> tuple[str, Placement]:
    """DDP on all replicas where it can run here, else one replica."""
    placement = resolve_placement(params.parallel)
    fitted = placement.for_batch(params.train.batchsz)
    task, options = RelationTask(params, packed), step_options(params.train)
    reason = params.parallel.switched_off("ddp") or unsupported_reason(
        "ddp", task, options, fitted, params.parallel
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
    auto = {0, ranks, max(ranks, threads // 2), max(ranks, threads)}
    counts = sorted(auto) if bench.workers == "auto" else sorted(bench.workers)
    for backend in bench.backends:
        for workers in [0] if backend == "resident" else counts:
            yield Loading(backend, workers)


# --- loading alone ----------------------------------------------------------------------------------------


def time_loaders(params: Params, packed: Path) -> list[LoaderBlock]:
    """Time loading alone: batches are read and thrown away."""
    bench = params.loader.bench
    settings = [(each, workers) for each in bench.backends for workers in worker_counts(params, each)]
    torch.set_num_threads(1)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # many workers hold many pipes and batches
    idle_bytes = tree_memory_bytes(os.getpid())
    for backend in bench.backends:  # the first to read would pay for the disk
        _block(-1, params, packed, backend, 0, idle_bytes)
    blocks, progress = [], Progress("loader-bench", bench.blocks, "round")
    for number in range(bench.blocks):
        order = Random(number).sample(settings, len(settings))
        blocks += [_block(number, params, packed, *setting, idle_bytes) for setting in order]
        progress(number + 1)
    return blocks


def worker_counts(params: Params, backend: Backend) -> list[int]:
    """Worker counts of loading alone; `auto`: 0, 1, 2, T/2, T, 2T, 3.5T of T hardware threads.

    Only for images that are decoded: an array is read faster than a worker hands a batch over.
    """
    if backend != "jpeg":
        return [0]
    if params.loader.bench.workers != "auto":
        return sorted(params.loader.bench.workers)
    threads = usable_threads()
    return sorted({0, 1, 2, max(1, threads // 2), threads, 2 * threads, math.ceil(3.5 * threads)})


def _block(
    number: int, params: Params, packed: Path, backend: Backend, workers: int, idle_bytes: int
) -> LoaderBlock:
    bench = params.loader.bench
    ready = workers * params.loader.prefetch
    fewest = max(_LEAST_BATCHES, _ROUNDS_OF_WORKERS * workers)
    begin = time.perf_counter()
    enough = (1 + ready + fewest + _MOST_BATCHES + ready) * bench.batchsz
    task = RelationTask(read_by(params, backend, workers), packed)
    loader = task.batches(Plan(enough, bench.batchsz), _HERE)
    next(loader)
    first = time.perf_counter()
    for _ in range(ready):
        next(loader)
    start = time.perf_counter()
    batches, seconds = 0, 0.0
    while batches < fewest or (seconds < bench.seconds and batches < _MOST_BATCHES):
        next(loader)
        batches, seconds = batches + 1, time.perf_counter() - start
    memory = tree_memory_bytes(os.getpid()) - idle_bytes
    del loader  # ends its workers
    return LoaderBlock(
        round=number,
        backend=backend,
        workers=workers,
        batchsz=bench.batchsz,
        batches=batches,
        seconds=seconds,
        first_batch_seconds=first - begin,
        memory_bytes=max(0, memory),
    )


def _settings(blocks: Sequence[LoaderBlock]) -> Iterator[Setting]:
    """One setting for each backend and number of workers."""
    for row in loader_rows(blocks, CONFIDENCE):
        mine = [each for each in blocks if (each.backend, each.workers) == (row.backend, row.workers)]
        series = {
            "seconds_per_batch": [each.seconds / each.batches for each in mine],
            "first_batch_seconds": [each.first_batch_seconds for each in mine],
            "memory_bytes": [float(each.memory_bytes) for each in mine],
        }
        options = {"backend": row.backend, "workers": row.workers, "batchsz": mine[0].batchsz}
        yield Setting(f"{row.backend}-{row.workers}", options, row, series)
