"""The CUDA devices of this machine: copies, launches, overlap, limits, and all-reduce between several."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import torch

from benchmarks import machine_allreduce
from benchmarks.limits import Shapes, Way, beyond_cache, copy_ways, full_float32, matrix_product, matrix_ways
from benchmarks.machine_compute import DTYPES
from benchmarks.outcome import RESAMPLING, Cell, Table
from benchmarks.probes import (
    Probe,
    Section,
    Series,
    block_seconds,
    bytes_said,
    in_turn,
    listing,
    seconds_per_call,
)
from parashot.hardware import usable_cores
from parashot.parallel.context import Placement
from parashot.questions.statistics import median_interval

SIZES = (64 * 2**10, 2**20, 16 * 2**20, 256 * 2**20)
"""Bytes that are copied: a small image, an episode, a batch, and more than any cache holds."""

DIRECTIONS = ("host to device", "device to host")
MEMORIES = ("pinned", "pageable")

_CUDA = "cuda"
_COPY, _PRODUCTS = "copy alone", "products alone"
_SQUARE = 4096
_QUICK_SIZES = SIZES[:1]
_QUICK_SQUARE = 64
_QUICK_SHAPES = Shapes(squares=(64,), images=1, channels=8, pixels=8)
_AT_LEAST_SECONDS = 0.1


def measure(quick: bool) -> Section:
    """All of it on the first device; without one, a line that says so."""
    if not torch.cuda.is_available():
        return Section([Table("CUDA", ("what", "here"), [("CUDA device", "not here")])])
    with full_float32():
        sections = [_copies(quick), _launches(quick), _overlap(quick), _limits(quick), _all_reduce(quick)]
    return Section(
        [table for section in sections for table in section.tables],
        {name: series for section in sections for name, series in section.raw.items()},
    )


def _copies(quick: bool) -> Section:
    """Every size by direction and by the host's kind of memory."""
    settings = list(product(_QUICK_SIZES if quick else SIZES, DIRECTIONS, MEMORIES))
    probes = [_copy(length, direction, memory, quick) for length, direction, memory in settings]
    measured = in_turn(probes, quick)
    rows: list[list[Cell]] = []
    for (length, direction, memory), probe in zip(settings, probes, strict=True):
        milliseconds = median_interval(measured[probe.name], RESAMPLING)
        rows.append(
            [bytes_said(length), direction, memory, milliseconds, milliseconds.reciprocal(length / 1e6)]
        )
    columns = ("bytes", "direction", "host memory", "ms", "GB/s")
    return Section([Table("CUDA: copies, queued one after the other", columns, rows)], measured)


def _copy(length: int, direction: str, memory: str, quick: bool) -> Probe:
    pinned = memory == "pinned"
    host = torch.ones(length, dtype=torch.uint8, pin_memory=pinned)
    card = torch.ones(length, dtype=torch.uint8, device=_CUDA)
    target, source = (card, host) if direction == DIRECTIONS[0] else (host, card)

    def milliseconds() -> float:
        return 1e3 * _seconds(lambda: target.copy_(source, non_blocking=pinned), quick)

    return Probe(f"{direction}, {memory}, {bytes_said(length)}", "ms", milliseconds)


def _launches(quick: bool) -> Section:
    """The smallest kernel, queued behind others and waited for each time."""
    one, result = torch.ones(1, device=_CUDA), torch.empty(1, device=_CUDA)

    def add() -> None:
        torch.add(one, one, out=result)

    def add_and_wait() -> None:
        add()
        torch.cuda.synchronize()

    how = "torch.add on one element"
    probes = [
        Probe("launch of a kernel, queued", "µs", lambda: 1e6 * _seconds(add, quick), how),
        Probe("launch of a kernel, waited for", "µs", lambda: 1e6 * _seconds(add_and_wait, quick), how),
    ]
    measured = in_turn(probes, quick)
    return Section([listing("CUDA: launches", probes, measured)], measured)


def _overlap(quick: bool) -> Section:
    """A pinned copy on a stream of its own beside products that take about as long."""
    length, square = (_QUICK_SIZES[-1], _QUICK_SQUARE) if quick else (SIZES[-1], _SQUARE)
    copy, multiply = _copy_aside(length), matrix_product(square, torch.float32, _CUDA).call
    products = max(1, round(_seconds(copy, quick) / _seconds(multiply, quick)))

    def compute() -> None:
        for _ in range(products):
            multiply()

    def both() -> None:
        copy()
        compute()

    calls = {_COPY: copy, _PRODUCTS: compute, "both at once": both}
    how = f"{bytes_said(length)} from pinned memory, on a stream of its own; {products} of {square:,} squared"
    probes = [Probe(name, "ms", _milliseconds(call, quick), how) for name, call in calls.items()]
    measured = in_turn(probes, quick)
    table = listing("CUDA: a copy beside products", probes, measured)
    return Section([Table(table.title, table.columns, [*table.rows, *_bounds(measured)])], measured)


def _milliseconds(call: Callable[[], object], quick: bool) -> Callable[[], float]:
    return lambda: 1e3 * _seconds(call, quick)


def _bounds(measured: Series) -> list[list[Cell]]:
    """What both would take if nothing of them overlapped, and if all did; round by round."""
    alone = list(zip(measured[_COPY], measured[_PRODUCTS], strict=True))
    together = median_interval([sum(pair) for pair in alone], RESAMPLING)
    larger = median_interval([max(pair) for pair in alone], RESAMPLING)
    return [["sum of the two", together, "ms", "nothing hidden"], ["larger", larger, "ms", "all hidden"]]


def _copy_aside(length: int) -> Callable[[], object]:
    """A copy from pinned memory that is queued on a stream of its own."""
    host = torch.ones(length, dtype=torch.uint8, pin_memory=True)
    card = torch.empty(length, dtype=torch.uint8, device=_CUDA)
    aside = torch.cuda.Stream()

    def copy() -> None:
        with torch.cuda.stream(aside):
            card.copy_(host, non_blocking=True)

    return copy


def _limits(quick: bool) -> Section:
    """Bandwidth of the device's own memory, and matrix work by type; float32 without TF32."""
    array_bytes = _QUICK_SIZES[-1] if quick else beyond_cache(_CUDA)
    missing: list[list[Cell]] = []
    with copy_ways(1, _CUDA, array_bytes) as copies:
        probes = [_rate(way, way.name, "GB/s", quick) for way in copies]
        for name, dtype in DTYPES.items():
            if dtype == torch.bfloat16 and not torch.cuda.is_bf16_supported(including_emulation=False):
                missing.append([f"matrix work, {name}", "not here", "", "the device computes no such type"])
                continue
            ways = matrix_ways(dtype, _CUDA, _QUICK_SHAPES if quick else None)
            probes += [_rate(way, f"{way.name}, {name}", "TFLOP/s", quick) for way in ways]
        measured = in_turn(probes, quick)
    table = listing("CUDA: limits", probes, measured)
    return Section([Table(table.title, table.columns, [*table.rows, *missing])], measured)


def _rate(way: Way, name: str, unit: str, quick: bool) -> Probe:
    """Amount per second, in `unit`."""
    scale = {"GB/s": 1e9, "TFLOP/s": 1e12}[unit]
    return Probe(name, unit, lambda: way.amount / _seconds(way.call, quick) / scale)


def _all_reduce(quick: bool) -> Section:
    """Over all devices, a process for each."""
    devices = torch.cuda.device_count()
    if devices == 1:
        row = ("all-reduce over nccl", "not here: it takes 2 devices, and there is 1")
        return Section([Table("CUDA: all-reduce", ("what", "here"), [row])])
    cores = usable_cores()
    return machine_allreduce.measure_on(Placement(_CUDA, devices, max(1, cores // devices), cores), quick)


def _seconds(call: Callable[[], object], quick: bool) -> float:
    """Seconds of a call among many in a queue, until the device has done them all."""
    return seconds_per_call(call, block_seconds(quick, _AT_LEAST_SECONDS), torch.cuda.synchronize)
