"""Interleaved timing, A B C A B C ..., of sides in processes of their own.

A process of its own keeps what one side does to its process (allocator, threads, caches of torch) from the
others. Only one side runs at a time; the others wait for work.
"""

from __future__ import annotations

import ctypes
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

import torch

from parashot.errors import DeviceError, one_line
from parashot.hardware import MemoryPeak, tree_memory_bytes
from parashot.lifetime import end_with_maker

Key = TypeVar("Key")

BLOCKS = 7
"""Interleaved blocks behind every median."""

_MEMORY_INTERVAL_SECONDS = 0.01

Block = Callable[[], float]
"""One timed block of work: returns its seconds per unit of work."""


def rounds(quick: bool) -> int:
    """Number of rounds behind every median; `quick`: the fewest that an interval can be made of."""
    return 2 if quick else BLOCKS


def in_turn(blocks: Mapping[Key, Block], rounds: int) -> dict[Key, list[float]]:
    """Measure every block in each round: item i of all lists is of round i. A first one is left out."""
    measured: dict[Key, list[float]] = {key: [] for key in blocks}
    for number in range(-1, rounds):
        for key, block in blocks.items():
            value = block()
            if number >= 0:
                measured[key].append(value)
    return measured


def fitting(seconds: Callable[[int], float], at_least: float, fewest: int = 1) -> int:
    """Return how many repetitions, but `fewest`, take `at_least` seconds; `seconds(n)` times n of them."""
    count, taken = fewest, seconds(fewest)
    while taken < at_least / 4:
        count *= 2
        taken = seconds(count)
    return max(fewest, math.ceil(count * at_least / taken))


def seconds_of(call: Callable[[], object], count: int = 1) -> float:
    """Time `count` calls in a row, until the device is done."""
    finish: Callable[[], object] = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    finish()
    begin = time.perf_counter()
    for _ in range(count):
        call()
    finish()
    return time.perf_counter() - begin


class Turns:
    """`with Turns(sides) as turns:` starts the sides; `turns.seconds(7)` lets them run in turn.

    sides: what makes the block of each, by name; called in the side's process. It imports peers itself, so
    that the idle memory of a side, its process before, is the same for all. Raises `DeviceError` in one line
    where a side fails or its process dies.
    """

    def __init__(self, sides: Mapping[str, Callable[[], Block]]) -> None:
        self._sides = sides
        spawn = multiprocessing.get_context("spawn")
        self._pools = {name: ProcessPoolExecutor(1, spawn, initializer=end_with_maker) for name in sides}

    def __enter__(self) -> Self:
        print(f"  in turn: {'; '.join(self._pools)}", file=sys.stderr)
        try:
            wait([pool.submit(_start) for pool in self._pools.values()])
            for name, make in self._sides.items():  # idle memory is comparable once all have imported torch
                self._ask(name, _make, make)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for pool in self._pools.values():
            pool.shutdown()

    def seconds(self, blocks: int = BLOCKS) -> dict[str, list[float]]:
        """Return the seconds of each block by side, item i of round i; a first round warms up."""
        return in_turn({name: partial(self._ask, name, _block) for name in self._pools}, blocks)

    def peak_memory(self) -> dict[str, float]:
        """Return peak bytes of one more block by side.

        On a card, of tensors; else above the idle process: PSS over its process tree.
        """
        return {name: self._ask(name, _peak_bytes) for name in self._pools}

    def private_memory(self) -> dict[str, float]:
        """Return bytes that only the end of each side's process sets free: no pages of mapped files."""
        return {name: self._ask(name, _private_bytes) for name in self._pools}

    def _ask(self, name: str, function: Callable[..., float], *args: object) -> float:
        try:
            return self._pools[name].submit(function, *args).result()
        except Exception as error:
            reason = f"{type(error).__name__}: {one_line(error)}"
            raise DeviceError(f"benchmark side {name!r}: {reason}") from error


def release_memory() -> None:
    """Hand freed memory back to the kernel, so that waiting sides hold little."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


# --- in the process of a side ---------------------------------------------------------------------------


@dataclass
class _State:
    """The block of this process's side, and bytes that its process tree held before it was made."""

    block: Block = float
    idle_bytes: int = 0


_state = _State()


def _start() -> float:
    """Return once this process has imported this module, and with it torch."""
    return 0.0


def _make(make: Callable[[], Block]) -> float:
    _state.idle_bytes = tree_memory_bytes(os.getpid())
    _state.block = make()
    return 0.0


def _block() -> float:
    return _state.block()


def _peak_bytes() -> float:
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        _state.block()
        return float(torch.cuda.max_memory_allocated())
    with MemoryPeak(_MEMORY_INTERVAL_SECONDS) as memory:
        _state.block()
    return float(memory.peak_bytes - _state.idle_bytes)


def _private_bytes() -> float:
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    return float(next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_Dirty:")))
