"""The latency numbers of this machine: what a user of parallel training should know by heart."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks import machine_cuda, machine_processes
from benchmarks.checkout import scratch_folder
from benchmarks.limits import BEYOND_CACHE, DTYPES, copy_bandwidth, matrix_peak
from benchmarks.outcome import Outcome, Table
from benchmarks.probes import Probe, bytes_said, in_turn, listing, rounds, seconds_per_call
from benchmarks.turns import seconds_of
from parashot.errors import DeviceError
from parashot.hardware import usable_cores
from parashot.questions.text import counted

Indices = NDArray[np.intp]

_QUICK_BYTES = 2 * 2**20
_BLOCK_BYTES = 64 * 2**20  # one new block of memory: of the size of a large activation
_FILE_BYTES, _CHUNK_BYTES, _SMALL_BYTES = 256 * 2**20, 2**20, 4096
_IN_CACHE_BYTES = 16 * 2**10
_READS = 200_000


def run(quick: bool) -> Outcome:
    """Measure one kind after the other, each in interleaved rounds: medians with 95% intervals."""
    tables, raw = [], {}
    for title, section in SECTIONS.items():
        with section(quick) as probes:
            raw[title] = in_turn(probes, quick)
        missing = Table(title, ("what", "here"), [(title, "not here")])
        tables.append(listing(title, probes, raw[title]) if probes else missing)
    settings = {
        "rounds": rounds(quick),
        "quick": quick,
        "threads": usable_cores(),
    }
    return Outcome("machine", tables, raw, settings)


# --- memory ---------------------------------------------------------------------------------------------


@contextmanager
def memory(quick: bool) -> Iterator[list[Probe]]:
    """Bandwidth of copies, latency of reads in a chain, cost of new pages."""
    array_bytes, block_bytes = (_QUICK_BYTES,) * 2 if quick else (BEYOND_CACHE, _BLOCK_BYTES)
    copied = f"{bytes_said(array_bytes)} read and as much written, both counted; the fastest of two ways"
    mapped = f"new anonymous map of {bytes_said(block_bytes)}, as the C library makes for a large block"
    seconds = 0.001 if quick else 0.4

    def gigabytes(threads: int) -> float:
        return copy_bandwidth(threads, "cpu", array_bytes, seconds) / 1e9

    def page_nanoseconds(part: int) -> float:
        return 1e9 * fresh_seconds(block_bytes)[part] / (block_bytes // mmap.PAGESIZE)

    yield [
        *(
            Probe(f"copy, {counted(threads, 'thread')}", "GB/s", partial(gigabytes, threads), copied)
            for threads in sorted({1, usable_cores()})
        ),
        _random_read("the first cache", _IN_CACHE_BYTES, quick),
        _random_read("memory", array_bytes, quick),
        Probe("first touch of a page", "ns", partial(page_nanoseconds, 0), mapped),
        Probe("return of a page", "ns", partial(page_nanoseconds, 1), mapped),
    ]


def _random_read(place: str, array_bytes: int, quick: bool) -> Probe:
    """Nanoseconds of one step of a walk whose next place lies in the place just read."""
    successors = cycle(array_bytes // np.dtype(np.intp).itemsize, np.random.default_rng(0))
    places = np.zeros(1 + (_READS // 100 if quick else _READS), np.intp)

    def nanoseconds() -> float:
        places[0] = places[-1]  # on from where the last round ended, to what no cache holds
        return 1e9 * walk(successors, places) / (len(places) - 1)

    how = f"chain of 8-byte reads over {bytes_said(array_bytes)} in random order, walked by one numpy.take"
    return Probe(f"random read from {place}", "ns", nanoseconds, how)


def cycle(length: int, generator: np.random.Generator) -> Indices:
    """Successor of each of `length` places on one closed way through all of them, in random order."""
    order = generator.permutation(length)
    successors = np.empty(length, np.intp)
    successors[order] = np.roll(order, -1)
    return successors


def walk(successors: Indices, places: Indices) -> float:
    """Fill `places[1:]` with the way that starts at `places[0]`; return its seconds.

    numpy.take reads index i + 1 from where it has just written result i, so that every read waits for the one
    before: a chase of pointers without a line of Python. numpy promises nothing about such an overlap, so the
    way is checked; `DeviceError` where it was not walked.
    """
    begin = perf_counter()
    np.take(successors, places[:-1], out=places[1:], mode="clip")  # other modes go by way of a buffer
    seconds = perf_counter() - begin
    if not np.array_equal(successors[places[:-1]], places[1:]):
        raise DeviceError(
            f"numpy {np.__version__} does not take indices one by one, so the latency of memory cannot be "
            "measured; install the version of constraints.txt"
        )
    return seconds


def fresh_seconds(block_bytes: int) -> tuple[float, float]:
    """Seconds to map a new block and touch each of its pages, and seconds to give it back."""
    begin = perf_counter()
    block = mmap.mmap(-1, block_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    view = np.frombuffer(block, np.uint8)
    view[:: mmap.PAGESIZE] = 1
    touched = perf_counter()
    del view
    block.close()
    return touched - begin, perf_counter() - touched


# --- disk -----------------------------------------------------------------------------------------------


@contextmanager
def disk(quick: bool) -> Iterator[list[Probe]]:
    """The disk under this checkout: writes that are really there, reads that really come from it."""
    length = _QUICK_BYTES if quick else _FILE_BYTES
    whole = f"{bytes_said(length)} in chunks of {bytes_said(_CHUNK_BYTES)}"
    dropped = f"{whole}, its pages dropped here (a virtual disk's host may still hold them)"
    with scratch_folder() as folder:
        large, small = folder / "large", folder / "small"
        small.write_bytes(bytes(_SMALL_BYTES))
        fill, remove = partial(write, length=length), partial(Path.unlink, missing_ok=True)

        def rate(call: Callable[[Path], object], prepare: Callable[[Path], object] = bool) -> float:
            prepare(large)
            return length / seconds_of(partial(call, large), 1) / 1e9

        yield [  # the write comes first in each round, so that the reads find a file
            Probe("sequential write", "GB/s", partial(rate, fill, remove), f"{whole}, fsync included"),
            Probe("sequential read from disk", "GB/s", partial(rate, read, drop_pages), dropped),
            Probe("sequential read from page cache", "GB/s", partial(rate, read), f"{whole}, read before"),
            Probe(
                "fsync of a small file",
                "ms",
                lambda: 1e3 * seconds_of(partial(write, small, _SMALL_BYTES), 1),
                f"{bytes_said(_SMALL_BYTES)} written over, then fsync",
            ),
        ]


def write(path: Path, length: int) -> None:
    """Write random bytes over a file, or a new one, and wait until they are on the disk."""
    chunk = os.urandom(min(length, _CHUNK_BYTES))  # a file system that compresses finds nothing to do
    with path.open("r+b" if path.exists() else "wb") as file:
        for _ in range(length // len(chunk)):
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


def drop_pages(path: Path) -> None:
    """Let the kernel drop the pages it holds of a file."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read(path: Path) -> None:
    """Read a file from front to end."""
    chunk = bytearray(_CHUNK_BYTES)
    with path.open("rb", buffering=0) as file:
        while file.readinto(chunk):
            pass


# --- compute --------------------------------------------------------------------------------------------


@contextmanager
def compute(quick: bool) -> Iterator[list[Probe]]:
    """Peaks of matrix work by type and threads, and what the smallest operations cost."""
    one, result = torch.ones(1), torch.empty(1)
    weight, value = torch.ones((), requires_grad=True), torch.ones(())
    seconds = 0.001 if quick else 0.5

    def gigaflops(kind: str, dtype: str, threads: int) -> float:
        return matrix_peak([kind], DTYPES[dtype], threads, "cpu", seconds) / 1e9

    def nanoseconds(call: Callable[[], object]) -> float:
        return 1e9 * seconds_per_call(call, quick)

    def start() -> float:
        return seconds_of(partial(subprocess.run, [sys.executable, "-c", "import torch"], check=True), 1)

    add = partial(torch.add, one, one, out=result)
    yield [
        *(
            Probe(
                f"matrix {kind}, {counted(threads, 'thread')}, {dtype}",
                "GFLOP/s",
                partial(gigaflops, kind, dtype, threads),
                "the fastest of several sizes",
            )
            for kind, threads, dtype in product(
                ("product", "convolution"), sorted({1, usable_cores()}), DTYPES
            )
        ),
        Probe("one small operator", "ns", partial(nanoseconds, add), "torch.add on one element"),
        Probe(
            "its forward and backward pass",
            "ns",
            partial(nanoseconds, lambda: torch.autograd.grad(weight * value, weight)),
            "autograd through one product of two scalars",
        ),
        Probe("start of a process that imports torch", "s", start, "until it has ended"),
    ]


SECTIONS: Mapping[str, Callable[[bool], AbstractContextManager[list[Probe]]]] = {
    "Memory": memory,
    "Disk": disk,
    "Messages between two processes": machine_processes.messages,
    "Compute": compute,
    "All-reduce": machine_processes.all_reduce,
    "CUDA": machine_cuda.cuda,
}
"""In the order of the tables."""
