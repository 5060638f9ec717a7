"""CUDA devices of this machine: copies, launches, overlap, limits, and all-reduce between several."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product

import torch

from benchmarks import machine_processes
from benchmarks.limits import DTYPES, copy_bandwidth, full_float32, matrix_peak, matrix_product
from benchmarks.probes import Probe, bytes_said, seconds_per_call

SIZES = (64 * 2**10, 2**20, 16 * 2**20, 256 * 2**20)
"""Bytes that are copied: a small image, an episode, a batch, and more than any cache holds."""

_CUDA = "cuda"


@contextmanager
def cuda(quick: bool) -> Iterator[list[Probe]]:
    """Probes of the first device, and all-reduces where there are several; none without one."""
    if not torch.cuda.is_available():
        yield []
        return
    with full_float32():
        probes = [*_copies(quick), *_launches(quick), *_overlap(quick), *_limits(quick)]
        if (devices := torch.cuda.device_count()) > 1:
            with machine_processes.all_reduce(quick, _CUDA, devices) as reduced:
                yield [*probes, *reduced]
        else:
            yield probes


def _copies(quick: bool) -> Iterator[Probe]:
    """Copies of every size by direction and by the host's kind of memory."""
    for length, to_device, pinned in product(SIZES[:1] if quick else SIZES, (True, False), (True, False)):
        host = torch.ones(length, dtype=torch.uint8, pin_memory=pinned)
        card = torch.ones(length, dtype=torch.uint8, device=_CUDA)
        target, source = (card, host) if to_device else (host, card)
        copy = partial(target.copy_, source, non_blocking=pinned)
        direction = "host to device" if to_device else "device to host"
        name = f"{direction}, {'pinned' if pinned else 'pageable'}, {bytes_said(length)}"
        yield Probe(name, "ms", partial(_milliseconds, copy, quick), "queued one after the other")


def _launches(quick: bool) -> list[Probe]:
    """The smallest kernel, queued behind others and waited for each time."""
    one, result = torch.ones(1, device=_CUDA), torch.empty(1, device=_CUDA)
    add = partial(torch.add, one, one, out=result)

    def add_and_wait() -> None:
        add()
        torch.cuda.synchronize()

    calls: dict[str, Callable[[], object]] = {"queued": add, "waited for": add_and_wait}
    return [
        Probe(
            f"launch of a kernel, {how}", "ms", partial(_milliseconds, call, quick), "torch.add, one element"
        )
        for how, call in calls.items()
    ]


def _overlap(quick: bool) -> list[Probe]:
    """A pinned copy on a stream of its own beside products that take about as long."""
    length, square = (SIZES[0], 64) if quick else (SIZES[-1], 4096)
    host = torch.ones(length, dtype=torch.uint8, pin_memory=True)
    card = torch.empty(length, dtype=torch.uint8, device=_CUDA)
    aside = torch.cuda.Stream()
    _, multiply = matrix_product(square, torch.float32, _CUDA)

    def copy() -> None:
        with torch.cuda.stream(aside):
            card.copy_(host, non_blocking=True)

    products = max(1, round(_milliseconds(copy, quick) / _milliseconds(multiply, quick)))

    def compute() -> None:
        for _ in range(products):
            multiply()

    def both() -> None:
        copy()
        compute()

    how = f"{bytes_said(length)} from pinned memory, on a stream of its own; {products} of {square:,} squared"
    calls = {"copy alone": copy, "products alone": compute, "both at once": both}
    return [Probe(name, "ms", partial(_milliseconds, call, quick), how) for name, call in calls.items()]


def _limits(quick: bool) -> Iterator[Probe]:
    """Bandwidth of the device's own memory, and matrix work by type; float32 without TF32."""
    seconds = 0.001 if quick else 0.5
    yield Probe("copy", "GB/s", lambda: copy_bandwidth(1, _CUDA, SIZES[-1], seconds) / 1e9)
    for kind, (name, dtype) in product(("product", "convolution"), DTYPES.items()):
        if dtype != torch.bfloat16 or torch.cuda.is_bf16_supported(including_emulation=False):
            yield Probe(f"matrix {kind}, {name}", "TFLOP/s", partial(_teraflops, kind, dtype, seconds))


def _teraflops(kind: str, dtype: torch.dtype, seconds: float) -> float:
    return matrix_peak([kind], dtype, 1, _CUDA, seconds) / 1e12


def _milliseconds(call: Callable[[], object], quick: bool) -> float:
    """Milliseconds of a call among many in a queue, until the device has done them all."""
    return 1e3 * seconds_per_call(call, quick, torch.cuda.synchronize)
