"""Interleaved timing, A B C A B C ..., of callables or of sides in processes of their own.

What is compared runs as sides: a process of its own keeps what one side does to its process (allocator,
threads, caches of torch) from the others. Only one side runs at a time; the others sleep on a pipe.
"""

from __future__ import annotations

import ctypes
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from parashot.errors import DeviceError
from parashot.hardware import MemoryPeak, tree_memory_bytes

BLOCKS = 7
"""Interleaved blocks behind every median."""

_MEMORY_INTERVAL_SECONDS = 0.01

Block = Callable[[], float]
"""One timed block of work: returns its seconds per unit of work."""


def interleaved(blocks: Mapping[str, Block], rounds: int, warmups: int = 1) -> dict[str, list[float]]:
    """Call every block once per round; return values by name, item i of round i, without the warm-ups."""
    measured: dict[str, list[float]] = {name: [] for name in blocks}
    for number in range(-warmups, rounds):
        for name, block in blocks.items():
            value = block()
            if number >= 0:
                measured[name].append(value)
        print(f"\r  round {number + 1} of {rounds} ", end="", file=sys.stderr, flush=True)
    print("\r" + " " * 30, end="\r", file=sys.stderr, flush=True)
    return measured


def fitting(seconds: Callable[[int], float], at_least: float, fewest: int = 1) -> int:
    """Return how many repetitions, but `fewest`, take `at_least` seconds; `seconds(n)` times n of them."""
    count, taken = fewest, seconds(fewest)
    while taken < at_least / 4:
        count *= 2
        taken = seconds(count)
    return max(fewest, math.ceil(count * at_least / taken))


def seconds_of(call: Callable[[], object], count: int, finish: Callable[[], object] = lambda: None) -> float:
    """Time `count` calls in a row; `finish` waits for the device."""
    finish()
    begin = time.perf_counter()
    for _ in range(count):
        call()
    finish()
    return time.perf_counter() - begin


@dataclass(frozen=True)
class Side:
    """One of the compared: `make(**arguments)` runs in the side's process and returns its block.

    `make` stands at the top of a module and imports peers itself, so that the idle memory of a side (its
    process before `make`, with `preload` imported) is the same for all.
    """

    name: str
    make: Callable[..., Block]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    preload: Sequence[str] = ("torch",)


class Turns:
    """`with Turns(sides) as turns:` starts the sides; `turns.seconds(7)` lets them run in turn.

    Raises `DeviceError` in one line where a side fails or its process dies.
    """

    def __init__(self, sides: Sequence[Side]) -> None:
        self.sides = list(sides)
        self._running: dict[str, tuple[Any, Connection]] = {}

    def __enter__(self) -> Self:
        spawn = multiprocessing.get_context("spawn")
        for side in self.sides:
            here, there = spawn.Pipe()
            process = spawn.Process(target=_serve, args=(side, there))  # not a daemon: it may have children
            process.start()
            there.close()
            self._running[side.name] = (process, here)
        try:
            for what in ("ready", "make"):  # idle memory is comparable once all have imported their packages
                for side in self.sides:
                    self._ask(side.name, what)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process, connection in self._running.values():
            connection.close()
            process.join(10)
            if process.is_alive():
                process.terminate()
                process.join()

    def seconds(self, blocks: int = BLOCKS, warmups: int = 1) -> dict[str, list[float]]:
        """Return the seconds of each block by side, as `interleaved` does."""
        asking = {side.name: partial(self._ask, side.name, "block") for side in self.sides}
        return interleaved(asking, blocks, warmups)

    def peak_memory(self) -> dict[str, int]:
        """Return peak bytes of one more block by side, above its idle process: PSS over its process tree."""
        return {side.name: int(self._ask(side.name, "memory")) for side in self.sides}

    def private_memory(self) -> dict[str, int]:
        """Return bytes that only the end of each side's process sets free: no pages of mapped files."""
        return {side.name: int(self._ask(side.name, "private")) for side in self.sides}

    def _ask(self, name: str, what: str) -> float:
        process, connection = self._running[name]
        connection.send(what)
        try:
            answer: float | str = connection.recv()
        except EOFError as error:
            process.join()
            raise DeviceError(f"benchmark side {name!r} ended with exit code {process.exitcode}") from error
        if isinstance(answer, str):
            raise DeviceError(f"benchmark side {name!r}: {' '.join(answer.split())}")
        return answer


def release_memory() -> None:
    """Hand freed memory back to the kernel, so that waiting sides hold little."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _serve(side: Side, connection: Connection) -> None:
    """Answer the parent's questions until it closes the pipe."""
    for module in side.preload:
        __import__(module)
    idle_bytes = 0
    block: Block = float
    while True:
        try:
            question = connection.recv()
        except EOFError:
            return
        try:
            answer: float | str = 0.0
            if question == "make":
                idle_bytes = tree_memory_bytes(os.getpid())
                block = side.make(**side.arguments)
            elif question == "block":
                answer = block()
            elif question == "memory":
                with MemoryPeak(_MEMORY_INTERVAL_SECONDS) as memory:
                    block()
                answer = float(memory.peak_bytes - idle_bytes)
            elif question == "private":
                answer = _private_bytes()
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        connection.send(answer)


def _private_bytes() -> float:
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    return float(next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_Dirty:")))
