"""Sides that are compared, each in a process of its own, timed in turn: A B C A B C ...

A process of its own keeps what one side does to its process (allocator, threads, caches of torch) from the
others. Only one side runs at a time; the others sleep on a pipe.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from parashot.errors import DeviceError
from parashot.hardware import MemoryPeak, tree_memory_bytes

BLOCKS = 7
"""Interleaved blocks behind every median."""

_MEMORY_INTERVAL_SECONDS = 0.01

Block = Callable[[], float]
"""Does one block and returns its seconds, timed by itself, per unit of work."""


@dataclass(frozen=True)
class Side:
    """One of the compared: `make(**arguments)` runs in the side's process and returns its block.

    `make` stands at the top of a module. What it needs of torch it imports itself, so that `idle_bytes` (the
    process before `make`, with `preload` imported) is the same for all sides.
    """

    name: str
    make: Callable[..., Block]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    preload: Sequence[str] = ("torch",)


class Turns:
    """`with Turns(sides) as turns:` starts the sides; `turns.seconds(7)` lets them run in turn."""

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
            for what in ("ready", "make"):  # what is idle is known when all share the packages they imported
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
        """Seconds of each block by side, item i of all from round i; `warmups` rounds are left out."""
        measured: dict[str, list[float]] = {side.name: [] for side in self.sides}
        for number in range(-warmups, blocks):
            for name, series in measured.items():
                taken = self._ask(name, "block")
                if number >= 0:
                    series.append(taken)
            print(f"\r  round {number + 1} of {blocks} ", end="", file=sys.stderr, flush=True)
        print("\r" + " " * 30, end="\r", file=sys.stderr, flush=True)
        return measured

    def peak_memory(self) -> dict[str, int]:
        """Peak bytes of one more block by side, above its idle process: PSS over its process tree."""
        return {side.name: int(self._ask(side.name, "memory")) for side in self.sides}

    def private_memory(self) -> dict[str, int]:
        """Bytes that each side's process has to itself, and that only its end sets free.

        Pages of a mapped file are not among them: the kernel takes those back whenever it likes.
        """
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
    """Hand freed memory back to the kernel, so that sides that wait hold little. After a block, unclocked."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _serve(side: Side, connection: Connection) -> None:
    """Answer the parent's questions until it closes the pipe."""
    for module in side.preload:
        __import__(module)
    idle_bytes = 0
    block: Block | None = None
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
            elif question == "private":
                answer = _private_bytes()
            elif question != "ready":
                assert block is not None
                answer = block() if question == "block" else _peak_of(block, idle_bytes)
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        connection.send(answer)


def _peak_of(block: Block, idle_bytes: int) -> float:
    with MemoryPeak(_MEMORY_INTERVAL_SECONDS) as memory:
        block()
    return float(memory.peak_bytes - idle_bytes)


def _private_bytes() -> float:
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    return float(next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_Dirty:")))
