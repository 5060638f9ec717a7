"""Memory of this machine: bandwidth of copies, latency of reads in a chain, cost of new pages."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray

from benchmarks.limits import Way, beyond_cache, copy_ways, using_threads
from benchmarks.probes import Probe, Section, block_seconds, bytes_said, in_turn, listing, seconds_per_call
from parashot.errors import DeviceError
from parashot.hardware import usable_cores
from parashot.questions.text import counted

Indices = NDArray[np.intp]

FRESH_BYTES = 64 * 2**20
"""One new block: of the size of a large activation."""

_QUICK_BYTES = 2**20
_IN_CACHE_BYTES = 16 * 2**10
_READS = 200_000
_COPY_SECONDS = 0.2


def measure(quick: bool) -> Section:
    """Copies, random reads and new pages, in turn."""
    array_bytes = _QUICK_BYTES if quick else beyond_cache()
    with ExitStack() as stack:
        copies = []
        for threads in sorted({1, usable_cores()}):
            ways = stack.enter_context(copy_ways(threads, "cpu", array_bytes))
            copies += [_copy(way, threads, array_bytes, quick) for way in ways]
        reads = [
            _random_read("the first cache", _IN_CACHE_BYTES, quick),
            _random_read("memory", array_bytes, quick),
        ]
        probes = [*copies, *reads, *_new_pages(quick)]
        measured = in_turn(probes, quick)
    return Section([listing("Memory", probes, measured)], measured)


def _copy(way: Way, threads: int, array_bytes: int, quick: bool) -> Probe:
    """Bytes moved: each byte counts as read and as written."""

    def gigabytes() -> float:
        with using_threads(threads):
            return way.amount / seconds_per_call(way.call, block_seconds(quick, _COPY_SECONDS)) / 1e9

    how = f"{bytes_said(array_bytes)} read and as much written, both counted"
    return Probe(f"{way.name}, {counted(threads, 'thread')}", "GB/s", gigabytes, how)


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
    begin = time.perf_counter()
    np.take(successors, places[:-1], out=places[1:], mode="clip")  # other modes go by way of a buffer
    seconds = time.perf_counter() - begin
    if not np.array_equal(successors[places[:-1]], places[1:]):
        raise DeviceError(
            f"numpy {np.__version__} does not take indices one by one, so the latency of memory cannot be "
            "measured; install the version of constraints.txt"
        )
    return seconds


def _new_pages(quick: bool) -> list[Probe]:
    """A page's first touch, and its return to the kernel."""
    page = bytes_said(mmap.PAGESIZE)
    block_bytes = _QUICK_BYTES if quick else FRESH_BYTES

    def nanoseconds(part: int) -> Callable[[], float]:
        return lambda: 1e9 * fresh_seconds(block_bytes)[part] / (block_bytes // mmap.PAGESIZE)

    how = f"new anonymous map of {bytes_said(block_bytes)}, as the C library makes for a large block"
    return [
        Probe(f"first touch of a page of {page}", "ns", nanoseconds(0), how),
        Probe(f"return of a page of {page}", "ns", nanoseconds(1), how),
    ]


def fresh_seconds(block_bytes: int) -> tuple[float, float]:
    """Seconds to map a new block and touch each of its pages, and seconds to give it back."""
    begin = time.perf_counter()
    block = mmap.mmap(-1, block_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    view = np.frombuffer(block, np.uint8)
    view[:: mmap.PAGESIZE] = 1
    touched = time.perf_counter()
    del view
    block.close()
    return touched - begin, time.perf_counter() - touched
