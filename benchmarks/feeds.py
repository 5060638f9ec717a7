"""Loaders as sides of a comparison: endless batches, timed in blocks that are long enough for the clock.

A loader in the training's own process has all cores for torch's threads, as worker processes have them; a
plain copy, and a process that only waits for its workers, has one thread. All keep freed memory as a training
process does. Workers fill up their queues after a block; they are waited for, so that they do not run while
another side is timed, and what they have ready is taken away before the clock starts.
"""

from __future__ import annotations

import itertools
import mmap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import torch

from benchmarks.limits import BEYOND_CACHE
from benchmarks.turns import Block, fitting
from benchmarks.workload import Workload
from parashot.allocator import keep_freed_memory
from parashot.data.episode_dataset import Backend, EpisodeDataset
from parashot.data.loaders import step_loader
from parashot.data.packed import PackedSplit
from parashot.data.pixels import prepare
from parashot.errors import DeviceError
from parashot.hardware import usable_cores
from parashot.task import Batch, Plan

PREFETCH = 2
"""Batches that each loader worker keeps ready: torch's default."""

ENDLESS = 10**9

_ROUNDS_OF_WORKERS = 2
"""Workers deliver in turn: a shorter block would measure a burst, or the wait for one."""

_REST_SECONDS = 0.03


def block_seconds(quick: bool) -> float:
    """Length of a block."""
    return 0.01 if quick else 0.25


@dataclass(frozen=True)
class Loading:
    """How parashot's loader reads; `floats` normalises each batch on `device` as well."""

    backend: Backend
    workers: int = 0
    device: str = "cpu"
    floats: bool = False

    def batches(self, split: PackedSplit, shape: Workload, steps: int = ENDLESS) -> Iterator[Batch]:
        """Uint8 batches of a split (of `jpeg`, floats), by default more than any measurement reads."""
        plan, where = Plan(steps * shape.batchsz, shape.batchsz), torch.device(self.device)
        dataset = EpisodeDataset(split, shape.spec, plan, 0, self.backend, shape.image_size)
        return step_loader(dataset, range(steps), self.workers, PREFETCH, where)


def ours(packed: Path, shape: Workload, loading: Loading, block_seconds: float, warm: bool = False) -> Block:
    """Parashot's loader; `warm` reads all images once before."""
    _prepare_process(loading.workers)
    split = PackedSplit(packed, "train")
    if warm:
        # by the very mapping that is read: what is in memory but not mapped, some systems hand back soon
        split.images.reshape(-1)[:: mmap.PAGESIZE].max()
    batches = loading.batches(split, shape)
    feed: Iterator[object] = batches
    if loading.floats:
        feed = ([prepare(each, shape.image_size) for each in batch.tensors[:2]] for batch in batches)
    return _blocks(feed, shape.batchsz, loading.workers, loading.device, block_seconds)


def study(photos: Path, shape: Workload, workers: int, block_seconds: float, device: str = "cpu") -> Block:
    """The study's method; its floats go to `device` unless they are there."""
    from benchmarks.peers.study_loader import study_loader

    _prepare_process(workers)
    batches = study_loader(photos, shape.spec, shape.image_size, shape.batchsz, workers, PREFETCH)
    on_device = ([each.to(torch.device(device)) for each in batch] for batch in batches)
    return _blocks(on_device, shape.batchsz, workers, device, block_seconds)


def plain_copy(shape: Workload, block_seconds: float) -> Block:
    """Copies of a batch's bytes by one thread to a reused buffer, from memory that no cache holds."""
    _prepare_process(1)
    region = np.ones(max(BEYOND_CACHE, 2 * shape.batch_bytes), dtype=np.uint8)
    buffer = np.zeros(shape.batch_bytes, dtype=np.uint8)
    begins = range(0, len(region) - len(buffer) + 1, len(buffer))

    def copies() -> Iterator[None]:
        for begin in itertools.cycle(begins):
            np.copyto(buffer, region[begin : begin + len(buffer)])
            yield

    return _blocks(copies(), shape.batchsz, 0, "cpu", block_seconds)


def _prepare_process(workers: int) -> None:
    keep_freed_memory()
    torch.set_num_threads(1 if workers else usable_cores())


def _blocks(
    batches: Iterator[object], episodes: int, workers: int, device: str, block_seconds: float
) -> Block:
    """A block that reads batches of `episodes` for `block_seconds` and returns seconds per episode."""
    ready = workers * PREFETCH

    def seconds(count: int) -> float:
        _take(batches, ready)
        begin = time.perf_counter()
        _take(batches, count)
        if device == "cuda":
            torch.cuda.synchronize()
        taken = time.perf_counter() - begin
        if workers:
            _wait_for_rest()
        return taken

    _take(batches, ready + 1)
    count = fitting(seconds, block_seconds, max(1, _ROUNDS_OF_WORKERS * workers))
    return lambda: seconds(count) / (count * episodes)


def _take(batches: Iterator[object], count: int) -> None:
    """Read `count` batches, each forgotten when the next one is there."""
    if sum(1 for _ in itertools.islice(batches, count)) < count:
        raise DeviceError("the loader came to its end before the measurement did; ask for fewer blocks")


def _wait_for_rest() -> None:
    """Wait until no worker of this process computes any more."""
    used, before = _worker_seconds(), -1.0
    while used > before:
        time.sleep(_REST_SECONDS)
        used, before = _worker_seconds(), used


def _worker_seconds() -> float:
    """Processor time that all processes below this one have used."""
    times = [each.cpu_times() for each in psutil.Process().children(recursive=True)]
    return sum(each.user + each.system for each in times)
