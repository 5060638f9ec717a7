"""What this machine does at most: FLOP/s of matrix work, bytes/s of a plain copy.

Both are the fastest run of the fastest of several ways, so that a share of them is a share of what was
reached here. No single way will do: a convolution can be far ahead of a matrix product, since libraries
differ in the vector units that they use on a processor.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

CACHES = 4
"""An array that is copied or read at random is this many times as large as the last cache."""

_PROCESSORS = Path("/sys/devices/system/cpu")
_UNKNOWN_CACHE = 64 * 2**20
_CUDA_ARRAY = 2**30  # so large that launching its copy does not count


@dataclass(frozen=True)
class Way:
    """One way to do an amount of work (FLOPs, or bytes read and written)."""

    kind: str
    detail: str
    amount: float
    call: Callable[[], object]

    @property
    def name(self) -> str:
        """What it is, in words."""
        return f"{self.kind} {self.detail}"


@dataclass(frozen=True)
class Shapes:
    """Sides of the squares that are multiplied, and the maps [images, channels, pixels, pixels] convolved."""

    squares: Sequence[int]
    images: int
    channels: int
    pixels: int


CPU = Shapes(squares=(512, 1024, 2048), images=16, channels=256, pixels=28)
CUDA = Shapes(squares=(2048, 4096, 8192), images=256, channels=256, pixels=28)


def matrix_peak_flops(dtype: torch.dtype, threads: int, device: str = "cpu", seconds: float = 2.0) -> float:
    """FLOP/s of the fastest matrix product or convolution found in about `seconds`, with `threads` on a CPU.

    Work of which one call would take over half of that (bfloat16 on a processor without instructions for it)
    is left out. A convolution counts as the FLOPs of its definition, also where the library needs fewer.
    """
    with using_threads(threads), full_float32():
        return _fastest(matrix_ways(dtype, device), device, seconds)


def copy_bandwidth(
    threads: int, device: str = "cpu", array_bytes: int | None = None, seconds: float = 1.0
) -> float:
    """Bytes per second of a plain copy beyond the caches, counting each byte twice: read and written.

    What a cache reads only to overwrite it is not counted. `array_bytes` (default: `beyond_cache(device)`) is
    the size of the source, and of the destination.
    """
    with using_threads(threads), copy_ways(threads, device, array_bytes or beyond_cache(device)) as ways:
        return _fastest(ways, device, seconds)


def matrix_ways(dtype: torch.dtype, device: str = "cpu", shapes: Shapes | None = None) -> list[Way]:
    """Square products and channels-last convolutions, from the fewest FLOPs up."""
    shapes = shapes or (CPU if device == "cpu" else CUDA)
    products = [matrix_product(size, dtype, device) for size in shapes.squares]
    convolutions = [convolution(kernel, shapes, dtype, device) for kernel in (1, 3)]
    return sorted([*products, *convolutions], key=lambda way: way.amount)


def matrix_product(size: int, dtype: torch.dtype, device: str = "cpu") -> Way:
    """Product of two square matrices: 2 · size³ FLOPs."""
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    result = torch.empty(size, size, dtype=dtype, device=device)

    def call() -> torch.Tensor:
        return torch.mm(left, right, out=result)

    return Way("matrix product", f"of {size:,} squared", 2.0 * size**3, call)


def convolution(kernel: int, shapes: Shapes, dtype: torch.dtype, device: str = "cpu") -> Way:
    """Convolution of channels-last maps that keeps their shape: 2 · kernel² · channels² FLOPs a pixel."""
    size = (shapes.images, shapes.channels, shapes.pixels, shapes.pixels)
    weights = (shapes.channels, shapes.channels, kernel, kernel)
    maps, filters = (
        torch.randn(each, device=device).to(dtype, memory_format=torch.channels_last)
        for each in (size, weights)
    )

    def call() -> torch.Tensor:
        with torch.inference_mode():
            return F.conv2d(maps, filters, padding=kernel // 2)

    flops = 2.0 * math.prod(size) * shapes.channels * kernel**2
    return Way("convolution", f"{kernel}×{kernel} of {shapes.channels} channels", flops, call)


@contextmanager
def copy_ways(threads: int, device: str, array_bytes: int) -> Iterator[list[Way]]:
    """Copies between the same two arrays: by torch, and on a CPU by one memory copy per thread too."""
    source = torch.randint(256, (array_bytes,), dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    moved = 2.0 * array_bytes
    by_torch = Way("copy", "by torch", moved, lambda: target.copy_(source))
    if device != "cpu":
        yield [by_torch]
        return
    targets, sources = (np.array_split(each.numpy(), threads) for each in (target, source))
    with ThreadPoolExecutor(threads) as pool:
        yield [
            by_torch,
            Way(
                "copy",
                "by memcpy, a part for each thread",
                moved,
                lambda: list(pool.map(np.copyto, targets, sources)),
            ),
        ]


def affordable(ways: Sequence[Way], device: str, seconds: float) -> list[Way]:
    """Warm up `ways` in their order, as long as the next one takes at most `seconds` at the last one's rate.

    At least the first is kept.
    """
    rate, kept = math.inf, list[Way]()
    for way in ways:
        if kept and way.amount / rate > seconds:
            break
        way.call()  # libraries choose and compile their kernels in the first call
        rate = way.amount / _seconds(way, device)
        kept.append(way)
    return kept


def _fastest(ways: Sequence[Way], device: str, seconds: float) -> float:
    """Amount per second of the fastest run of the fastest way."""
    kept = affordable(ways, device, seconds / 2)
    return max(_rate(way, device, seconds / len(kept)) for way in kept)


def _rate(way: Way, device: str, seconds: float) -> float:
    """Amount per second of the fastest run within the time; there is at least one."""
    deadline = time.perf_counter() + seconds
    best = _seconds(way, device)
    while time.perf_counter() < deadline:
        best = min(best, _seconds(way, device))
    return way.amount / best


def _seconds(way: Way, device: str) -> float:
    wait_for(device)
    begin = time.perf_counter()
    way.call()
    wait_for(device)
    return time.perf_counter() - begin


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


@contextmanager
def full_float32() -> Iterator[None]:
    """Keep float32 products in float32 meanwhile: no TF32, which cuDNN takes unless told otherwise."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    convolutions = (
        torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=False)
        if torch.cuda.is_available()
        else nullcontext()
    )
    try:
        with convolutions:
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def beyond_cache(device: str = "cpu") -> int:
    """Bytes of an array that no cache of the device can hold: several times its last one."""
    if device == "cpu":
        return CACHES * last_cache_bytes()
    return max(CACHES * torch.cuda.get_device_properties(device).L2_cache_size, _CUDA_ARRAY)


def last_cache_bytes(processors: Path = _PROCESSORS) -> int:
    """Bytes of the last caches behind the processors this process may use, as the kernel lists them."""
    caches: dict[tuple[int, str], int] = {}
    for processor in os.sched_getaffinity(0):
        for folder in processors.glob(f"cpu{processor}/cache/index*"):
            level, size, sharers = (_read(folder / name) for name in ("level", "size", "shared_cpu_list"))
            if level.isdigit() and size.endswith("K"):
                caches[int(level), sharers] = int(size[:-1]) * 1024
    last = max((level for level, _ in caches), default=0)
    return sum(size for (level, _), size in caches.items() if level == last) or _UNKNOWN_CACHE


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
