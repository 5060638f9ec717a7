"""Limits of this machine: FLOP/s of matrix work, bytes/s of a plain copy.

Both are the fastest run of the fastest of several ways, so that a share of them is a share of what was
reached here. No single way will do: a convolution can be far ahead of a matrix product, since libraries
differ in the vector units that they use on a processor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from time import perf_counter

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks.turns import seconds_of

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

Way = tuple[float, Callable[[], object]]
"""An amount of work (FLOPs, or bytes read and written), and a call that does it."""

BEYOND_CACHE = 512 * 2**20
"""Bytes: more than the last cache of any machine we know of."""


def matrix_peak(
    kinds: Sequence[str], dtype: torch.dtype, threads: int, device: str = "cpu", seconds: float = 1.0
) -> float:
    """FLOP/s of the fastest work of `kinds`, "product" and "convolution", found in about `seconds` of each.

    A convolution counts as the FLOPs of its definition, also where the library needs fewer.
    """
    large = device != "cpu"
    ways = []
    for kind in kinds:
        if kind == "product":
            ways += [matrix_product(size * (4 if large else 1), dtype, device) for size in (512, 1024, 2048)]
        else:
            ways += [convolution(kernel, 256 if large else 16, dtype, device) for kernel in (1, 3)]
    with using_threads(threads), full_float32():
        return fastest(ways, device, seconds)


def copy_bandwidth(
    threads: int, device: str = "cpu", array_bytes: int = BEYOND_CACHE, seconds: float = 1.0
) -> float:
    """Bytes per second of a plain copy beyond the caches, counting each byte twice: read and written.

    What a cache reads only to overwrite it is not counted. `array_bytes` is the size of the source, and of
    the destination.
    """
    with using_threads(threads):
        return fastest(copy_ways(threads, device, array_bytes), device, seconds)


def fastest(ways: Sequence[Way], device: str, seconds: float) -> float:
    """Amount per second of the fastest run of the fastest of `ways`, from the least amount up.

    Ways are left out from the first on of which one call would take over half of `seconds` at the best rate
    so far (bfloat16 on a processor without instructions for it). At least one is called.
    """
    best = 0.0
    for amount, call in sorted(ways, key=lambda way: way[0]):
        if best and amount / best > seconds / 2:
            break
        call()  # libraries choose and compile their kernels in the first call
        deadline = perf_counter() + seconds / len(ways)
        while True:
            best = max(best, amount / seconds_of(call, 1, partial(wait_for, device)))
            if perf_counter() >= deadline:
                break
    return best


def matrix_product(size: int, dtype: torch.dtype, device: str = "cpu") -> Way:
    """Product of two square matrices: 2 · size³ FLOPs."""
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    result = torch.empty(size, size, dtype=dtype, device=device)
    return 2.0 * size**3, partial(torch.mm, left, right, out=result)


def convolution(
    kernel: int, images: int, dtype: torch.dtype, device: str = "cpu", channels: int = 256, pixels: int = 28
) -> Way:
    """Convolution of channels-last maps that keeps their shape: 2 · kernel² · channels² FLOPs a pixel."""
    sizes = ((images, channels, pixels, pixels), (channels, channels, kernel, kernel))
    maps, filters = (
        torch.randn(each, device=device).to(dtype, memory_format=torch.channels_last) for each in sizes
    )

    def call() -> torch.Tensor:
        with torch.inference_mode():
            return F.conv2d(maps, filters, padding=kernel // 2)

    return 2.0 * maps.numel() * channels * kernel**2, call


def copy_ways(threads: int, device: str, array_bytes: int) -> list[Way]:
    """Copies between the same two arrays: by torch, and on a CPU by one memory copy per thread too."""
    source = torch.ones(array_bytes, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    ways: list[Way] = [(2.0 * array_bytes, partial(target.copy_, source))]
    if device == "cpu":
        parts = [np.array_split(each.numpy(), threads) for each in (target, source)]
        pool = ThreadPoolExecutor(threads)
        ways.append((2.0 * array_bytes, lambda: list(pool.map(np.copyto, *parts))))
    return ways


def wait_for(device: str) -> None:
    """Wait until the device has done all that it was given; a CPU has."""
    if device != "cpu":
        torch.cuda.synchronize(device)


@contextmanager
def using_threads(threads: int) -> Iterator[None]:
    """Let torch use `threads` threads meanwhile."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def full_float32() -> AbstractContextManager[None]:
    """Keep convolutions of a card in float32 meanwhile: cuDNN takes TF32 unless told otherwise."""
    if not torch.cuda.is_available():
        return nullcontext()
    flags: AbstractContextManager[None] = torch.backends.cudnn.flags(
        enabled=True, benchmark=True, allow_tf32=False
    )
    return flags
