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
from pathlib import Path

import numpy as np
import psutil
import torch

from benchmarks.limits import BEYOND_CACHE
from benchmarks.turns import Block, fitting, seconds_of
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


def our_batches(
    split: PackedSplit,
    shape: Workload,
    backend: Backend = "packed",
    workers: int = 0,
    device: str = "cpu",
    steps: int = ENDLESS,
) -> Iterator[Batch]:
    """Batches of parashot's loader, by default more than any measurement reads: uint8, of `jpeg` floats."""
    plan = Plan(steps * shape.batchsz, shape.batchsz)
    dataset = EpisodeDataset(split, shape.spec, plan, 0, backend, shape.image_size)
    return step_loader(dataset, range(steps), workers, PREFETCH, torch.device(device))


def ours(
    packed: Path, shape: Workload, block_seconds: float, device: str | None = None, warm: bool = False
) -> Block:
    """Parashot's loader; `device`: where batches are normalised as well; `warm` reads all images before."""
    _prepare_process(0)
    split = PackedSplit(packed, "train")
    if warm:
        # by the very mapping that is read: what is in memory but not mapped, some systems hand back soon
        split.images.reshape(-1)[:: mmap.PAGESIZE].max()
    batches = our_batches(split, shape, device=device or "cpu")
    if device is None:
        return _blocks(batches, shape.batchsz, 0, block_seconds)
    floats = ([prepare(each, shape.image_size) for each in batch.tensors[:2]] for batch in batches)
    return _blocks(floats, shape.batchsz, 0, block_seconds)


def study(photos: Path, shape: Workload, block_seconds: float, workers: int, device: str) -> Block:
    """The study's method; its floats go to `device` unless they are there."""
    from benchmarks.peers.study_loader import study_loader

    _prepare_process(workers)
    batches = study_loader(photos, shape.spec, shape.image_size, shape.batchsz, workers, PREFETCH)
    on_device = ([each.to(torch.device(device)) for each in batch] for batch in batches)
    return _blocks(on_device, shape.batchsz, workers, block_seconds)


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

    return _blocks(copies(), shape.batchsz, 0, block_seconds)


def _prepare_process(workers: int) -> None:
    keep_freed_memory()
    torch.set_num_threads(1 if workers else usable_cores())


def _blocks(batches: Iterator[object], episodes: int, workers: int, block_seconds: float) -> Block:
    """A block that reads batches of `episodes` for `block_seconds` and returns seconds per episode."""
    ready = workers * PREFETCH

    def seconds(count: int) -> float:
        _take(batches, ready)
        taken = seconds_of(lambda: _take(batches, count))
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
