"""Loaders as sides of a comparison: read without end, timed in blocks that are long enough for the clock.

A loader in the training's own process has all cores for torch's threads, as worker processes have them; a
plain copy, and a process that only waits for its workers, has one thread. All keep freed memory as a training
process does. Worker processes fill up their queues after a block; they are waited for, so that they do not
run while another side is timed, and what they have ready is taken away before the clock starts. Only sides
that need a peer import it.
"""

from __future__ import annotations

import itertools
import math
import mmap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import torch

from benchmarks.images import packed_bytes
from benchmarks.turns import Block
from parashot.data.batches import Batch, Plan
from parashot.data.episodes import EpisodeSpec
from parashot.data.loaders import Backend, EpisodeDataset, episode_loader
from parashot.data.packed import PackedSplit
from parashot.data.pixels import prepare
from parashot.errors import DeviceError
from parashot.hardware import usable_cores
from parashot.parallel.allocator import keep_freed_memory

PREFETCH = 2
"""Batches a worker keeps ready: torch's own default."""

_ENDLESS = 10**9
_ROUNDS_OF_WORKERS = 2
"""Workers deliver in turn: a shorter block would measure a burst, or the wait for one."""

_REST_SECONDS = 0.03
_COPIED_BYTES = 512 * 2**20
"""More than the last cache of any machine we know of."""


@dataclass(frozen=True)
class Shape:
    """5-way 1-shot episodes: image size in pixels, query images per class, episodes of a batch."""

    size: int
    k_query: int
    batchsz: int

    @property
    def spec(self) -> EpisodeSpec:
        """The same for those who draw the episodes."""
        return EpisodeSpec(n_way=5, k_shot=1, k_query=self.k_query)

    @property
    def batch_bytes(self) -> int:
        """uint8 pixels of a batch."""
        return self.batchsz * packed_bytes(self.spec.images, self.size)


def ours(
    packed: Path,
    shape: Shape,
    backend: Backend,
    workers: int,
    block_seconds: float,
    device: str = "cpu",
    floats: bool = False,
    warm: bool = False,
) -> Block:
    """parashot's loader with one of its backends.

    floats: each batch is normalised on `device` as well; warm: all images have been read once before.
    """
    _prepare_process(1 if workers else usable_cores())
    split = PackedSplit(packed, "train")
    if warm:
        _read_through(split)
    plan = Plan(_ENDLESS, shape.batchsz)
    dataset = EpisodeDataset(split, shape.spec, plan, 0, backend, shape.size)

    def as_floats(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        return prepare(batch.support, shape.size), prepare(batch.query, shape.size)

    batches = episode_loader(dataset, workers, PREFETCH, torch.device(device))
    feed = map(as_floats, batches) if floats else batches
    return _blocks(feed, shape.batchsz, workers, device, block_seconds)


def study(photos: Path, shape: Shape, workers: int, block_seconds: float, device: str = "cpu") -> Block:
    """The study's method; its floats go to `device`, where that is not where they are."""
    from benchmarks.peers.study_loader import Episode, study_loader

    _prepare_process(1 if workers else usable_cores())

    def on_device(batch: Episode) -> Episode:
        support, query = batch
        return support.to(torch.device(device)), query.to(torch.device(device))

    batches = study_loader(photos, shape.spec, shape.size, shape.batchsz, workers, PREFETCH)
    return _blocks(map(on_device, batches), shape.batchsz, workers, device, block_seconds)


def easyfsl(photos: Path, shape: Shape, workers: int, block_seconds: float) -> Block:
    """easyfsl's loader, an episode at a time."""
    from benchmarks.peers.easyfsl_loader import easyfsl_loader

    _prepare_process(1 if workers else usable_cores())
    batches = easyfsl_loader(photos, shape.spec, shape.size, workers, PREFETCH)
    return _blocks(batches, 1, workers, "cpu", block_seconds)


def plain_copy(shape: Shape, block_seconds: float) -> Block:
    """A batch's bytes copied to a buffer that is used again, from memory that no cache holds."""
    _prepare_process()
    region = np.ones(max(_COPIED_BYTES, 2 * shape.batch_bytes), dtype=np.uint8)
    buffer = np.zeros(shape.batch_bytes, dtype=np.uint8)
    begins = range(0, len(region) - len(buffer) + 1, len(buffer))

    def copies() -> Iterator[None]:
        for begin in itertools.cycle(begins):
            np.copyto(buffer, region[begin : begin + len(buffer)])
            yield

    return _blocks(copies(), shape.batchsz, 0, "cpu", block_seconds)


def _read_through(split: PackedSplit) -> None:
    """Touch every page by the very mapping that is read later.

    What is in memory but not mapped, some systems hand back within a minute (DAMON does).
    """
    split.images.reshape(-1)[:: mmap.PAGESIZE].max()


def _prepare_process(threads: int = 1) -> None:
    keep_freed_memory()
    torch.set_num_threads(threads)


def _blocks(
    batches: Iterator[object], episodes: int, workers: int, device: str, block_seconds: float
) -> Block:
    """A block reads so many batches of `episodes` that it takes `block_seconds`; it returns s/episode."""
    ready = workers * PREFETCH

    def seconds(count: int) -> float:
        _take(batches, ready)
        begin = time.perf_counter()
        _take(batches, count)
        _synchronise(device)
        taken = time.perf_counter() - begin
        if workers:
            _wait_for_rest()
        return taken

    _take(batches, ready + 1)
    count = _fitting(seconds, max(1, _ROUNDS_OF_WORKERS * workers), block_seconds)
    return lambda: seconds(count) / (count * episodes)


def _fitting(seconds: Callable[[int], float], fewest: int, block_seconds: float) -> int:
    """How many batches take `block_seconds`, at least `fewest`."""
    count, taken = fewest, seconds(fewest)
    while taken < block_seconds / 4:
        count *= 2
        taken = seconds(count)
    return max(fewest, math.ceil(count * block_seconds / taken))


def _take(batches: Iterator[object], count: int) -> None:
    """Read `count` batches, each forgotten when the next one is there."""
    if sum(1 for _ in itertools.islice(batches, count)) < count:
        raise DeviceError("the loader came to its end before the measurement did; ask for fewer blocks")


def _worker_seconds() -> float:
    """Processor time that all processes below this one have used."""
    times = [each.cpu_times() for each in psutil.Process().children(recursive=True)]
    return sum(each.user + each.system for each in times)


def _synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _wait_for_rest() -> None:
    """Wait until no worker of this process computes any more."""
    used, before = _worker_seconds(), -1.0
    while used > before:
        time.sleep(_REST_SECONDS)
        used, before = _worker_seconds(), used
