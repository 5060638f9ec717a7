"""Limits of this machine: FLOP/s of matrix work, bytes/s of a copy.

Each is the fastest run that torch's own timer found, so that a share of it is a share of what was reached
here. Of matrix work it is the fastest of several ways: a convolution can be far ahead of a matrix product,
since libraries differ in the vector units that they use on a processor.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

if TYPE_CHECKING:
    from torch.utils.benchmark import Measurement

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}

Way = tuple[float, Callable[[], object]]
"""A number of FLOPs, and a call that does them."""

BEYOND_CACHE = 512 * 2**20
"""Bytes: more than the last cache of any machine we know of."""


def timed(call: Callable[[], object], seconds: float, threads: int = 1) -> Measurement:
    """Time `call`, warmed up, for about `seconds`, until the device is done."""
    from torch.utils.benchmark import Timer  # imports torch's compilers

    return Timer("call()", globals={"call": call}, num_threads=threads).blocked_autorange(
        min_run_time=seconds
    )


def matrix_peak(
    dtype: torch.dtype, threads: int, device: str = "cpu", seconds: float = 0.5, quick: bool = False
) -> float:
    """FLOP/s of the fastest of several matrix products and convolutions; on a card in float32 without TF32.

    A convolution counts as the FLOPs of its definition, also where the library needs fewer. quick: small.
    """
    larger = 1 if device == "cpu" else 4
    sizes, images = ((64,), 1) if quick else ((512, 1024, 2048), 16)
    ways = [matrix_product(size * larger, dtype, device) for size in sizes]
    ways += [convolution(kernel, images * larger**2, dtype, device) for kernel in (1, 3)]
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=False):
        return max(flops / min(timed(call, seconds, threads).times) for flops, call in ways)


def copy_bandwidth(
    threads: int, device: str = "cpu", array_bytes: int = BEYOND_CACHE, seconds: float = 1.0
) -> float:
    """Bytes per second of a copy of `array_bytes`, counting each byte twice: read and written.

    What a cache reads only to overwrite it is not counted.
    """
    source = torch.ones(array_bytes, dtype=torch.uint8, device=device)
    copy = partial(torch.zeros_like(source).copy_, source)
    return 2 * array_bytes / min(timed(copy, seconds, threads).times)


def matrix_product(size: int, dtype: torch.dtype, device: str = "cpu") -> Way:
    """Product of two square matrices: 2 · size³ FLOPs."""
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return 2.0 * size**3, partial(torch.mm, left, right, out=torch.empty_like(left))


def convolution(
    kernel: int, images: int, dtype: torch.dtype, device: str = "cpu", channels: int = 256, pixels: int = 28
) -> Way:
    """Convolution of channels-last maps that keeps their shape: 2 · kernel² · channels² FLOPs a pixel."""
    sizes = ((images, channels, pixels, pixels), (channels, channels, kernel, kernel))
    maps, filters = (
        torch.randn(each, device=device).to(dtype, memory_format=torch.channels_last) for each in sizes
    )
    return 2.0 * maps.numel() * channels * kernel**2, partial(F.conv2d, maps, filters, padding=kernel // 2)
