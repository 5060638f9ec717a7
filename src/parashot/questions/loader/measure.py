"""Loader workers × backends, the study's Table 2: interleaved rounds, each with loaders of its own.

A block makes a loader, takes its first batch, takes as many more as its workers had ready before anyone asked
(they would come for free), and only then times. Memory is that of the process tree above the same process
without a loader.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch

from parashot.data.batches import Batch, Plan
from parashot.data.episodes import EpisodeSpec
from parashot.data.loaders import Backend, EpisodeDataset, episode_loader
from parashot.data.packed import PackedSplit
from parashot.files import replacing_folder
from parashot.hardware import inspect_hardware, tree_memory_bytes
from parashot.params import Params
from parashot.progress import Progress
from parashot.questions.loader.records import LoaderBlock
from parashot.questions.runs import StageRuns
from parashot.records import write_metrics, write_rows, write_runs

KNOBS = ("seed", "episode", "model.image_size", "loader.prefetch", "loader.bench")

_ROUNDS_OF_WORKERS = 3
"""Workers deliver in turn: a block of less than a few turns would measure a burst, or the wait for one."""


def bench_loaders(params: Params, packed: Path, out: Path, tags: Mapping[str, str]) -> None:
    """Measure the grid of `params.loader.bench` on the packed training split and write `out`."""
    runs = StageRuns("loader workers", "loader-bench", params, KNOBS, tags, ["blocks.csv"])
    bench = params.loader.bench
    settings = [
        (backend, workers) for backend in bench.backends for workers in worker_counts(params, backend)
    ]
    torch.set_num_threads(1)
    _take(
        _loader(params, packed, bench.backends[0], 1, 1), 1
    )  # starts the server that workers are forked from
    idle_bytes = tree_memory_bytes(os.getpid())
    for backend in bench.backends:  # the first to read would pay for the disk
        _block(-1, params, packed, backend, 0, idle_bytes)
    blocks = []
    progress = Progress("loader-bench", bench.blocks, "round")
    for number in range(bench.blocks):
        blocks += [
            _block(number, params, packed, backend, workers, idle_bytes) for backend, workers in settings
        ]
        progress(number + 1)
    _write(out, params, blocks, runs)


def worker_counts(params: Params, backend: Backend) -> list[int]:
    """Worker counts of the grid; `auto`: 0, 1, 2, T/2, T, 2T, 3.5T of T hardware threads.

    `resident` has nothing for workers to do.
    """
    if backend == "resident":
        return [0]
    if params.loader.bench.workers != "auto":
        return sorted(params.loader.bench.workers)
    threads = inspect_hardware().threads
    return sorted({0, 1, 2, max(1, threads // 2), threads, 2 * threads, math.ceil(3.5 * threads)})


def _block(
    number: int, params: Params, packed: Path, backend: Backend, workers: int, idle_bytes: int
) -> LoaderBlock:
    bench = params.loader.bench
    ready = workers * params.loader.prefetch
    batches = max(bench.batches, _ROUNDS_OF_WORKERS * workers)
    begin = time.perf_counter()
    loader = _loader(params, packed, backend, workers, 1 + ready + batches + ready)
    _take(loader, 1)
    first = time.perf_counter()
    _take(loader, ready)
    start = time.perf_counter()
    _take(loader, batches)
    seconds = time.perf_counter() - start
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


def _loader(params: Params, packed: Path, backend: Backend, workers: int, batches: int) -> Iterator[Batch]:
    episode, bench = params.episode, params.loader.bench
    dataset = EpisodeDataset(
        PackedSplit(packed, "train"),
        EpisodeSpec(episode.n_way, episode.k_shot, episode.k_query),
        Plan(batches * bench.batchsz, bench.batchsz),
        params.seed,
        backend,
        params.model.image_size,
    )
    return episode_loader(dataset, workers, params.loader.prefetch, torch.device("cpu"))


def _take(loader: Iterator[Batch], count: int) -> None:
    for _ in range(count):
        next(loader)


def _write(out: Path, params: Params, blocks: list[LoaderBlock], runs: StageRuns) -> None:
    metrics: dict[str, float | int | str | None] = {}
    for backend in params.loader.bench.backends:
        rates = {}
        for workers in worker_counts(params, backend):
            mine = [block for block in blocks if (block.backend, block.workers) == (backend, workers)]
            seconds = [block.seconds / block.batches for block in mine]
            rates[workers] = params.loader.bench.batchsz / float(np.median(seconds))
            runs.child(
                f"{backend}, {workers} workers",
                {"backend": backend, "workers": workers, "batchsz": params.loader.bench.batchsz},
                {
                    "seconds_per_batch": seconds,
                    "first_batch_seconds": [block.first_batch_seconds for block in mine],
                    "memory_bytes": [block.memory_bytes for block in mine],
                },
                {"episodes_per_second": rates[workers]},
            )
        best = max(rates, key=lambda workers: rates[workers])
        metrics[f"{backend}_best_workers"] = best
        metrics[f"{backend}_episodes_per_second"] = rates[best]
        if 0 in rates:
            metrics[f"{backend}_speedup"] = rates[best] / rates[0]
    with replacing_folder(out) as folder:
        write_rows(folder / "blocks.csv", LoaderBlock, blocks)
        write_metrics(folder / "metrics.json", metrics)
        write_runs(folder / "records.jsonl", runs.all(metrics))
