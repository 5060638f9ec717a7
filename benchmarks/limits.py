"""Limits of this machine: FLOP/s of matrix work, bytes/s of a copy, on all cores or the card.

Each is the fastest run that torch's own timer found, so that a share of it is a share of what was reached
here. Of matrix work it is the fastest of several ways: a convolution can be far ahead of a matrix product,
since libraries differ in the vector units that they use on a processor.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.workload import device
from parashot.hardware import usable_cores

BEYOND_CACHE = 512 * 2**20
"""Bytes: more than the last cache of any machine we know of."""

CHANNELS, PIXELS = 256, 28
"""Of the convolutions, which keep the shape of their maps."""


def matrix_peak(dtype: torch.dtype, quick: bool) -> float:
    """FLOP/s of the fastest of several matrix products and convolutions; on a card in float32 without TF32.

    A convolution counts as the FLOPs of its definition, also where the library needs fewer. quick: small.
    """
    larger = 1 if device().type == "cpu" else 4
    sizes, images = ((64,), 1) if quick else ((512, 1024, 2048), 16)
    ways = [_matrix_product(size * larger, dtype) for size in sizes]
    ways += [_convolution(kernel, images * larger**2, dtype) for kernel in (1, 3)]
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=False):
        return max(_flops(way) / _fastest(way, seconds=0.5) for way in ways)


def copy_bandwidth(quick: bool) -> float:
    """Bytes per second of a copy beyond all caches, counting each byte twice: read and written.

    What a cache reads only to overwrite it is not counted. quick: of a few bytes, once.
    """
    size, seconds = (2**12, 0.001) if quick else (BEYOND_CACHE, 1.0)
    source = torch.ones(size, dtype=torch.uint8, device=device())
    return 2 * size / _fastest(partial(torch.zeros_like(source).copy_, source), seconds)


def _matrix_product(size: int, dtype: torch.dtype) -> Callable[[], object]:
    left, right = (torch.randn(size, size, device=device()).to(dtype) for _ in range(2))
    return partial(torch.mm, left, right, out=torch.empty_like(left))


def _convolution(kernel: int, images: int, dtype: torch.dtype) -> Callable[[], object]:
    sizes = ((images, CHANNELS, PIXELS, PIXELS), (CHANNELS, CHANNELS, kernel, kernel))
    maps, filters = (
        torch.randn(each, device=device()).to(dtype, memory_format=torch.channels_last) for each in sizes
    )
    return partial(F.conv2d, maps, filters, padding=kernel // 2)


def _flops(call: Callable[[], object]) -> int:
    """FLOPs of a call as torch counts them: 2 for each multiply and add."""
    with FlopCounterMode(display=False) as counter:
        call()
    return int(counter.get_total_flops())


def _fastest(call: Callable[[], object], seconds: float) -> float:
    """Seconds of the fastest of many calls, warmed up, for about `seconds`, until the device is done."""
    from torch.utils.benchmark import Timer  # imports torch's compilers

    timer = Timer("call()", globals={"call": call}, num_threads=usable_cores())
    return min(timer.blocked_autorange(min_run_time=seconds).times)
