"""What a message between two processes of this machine costs, by the way it takes.

A loader's worker hands every batch to the training process in one of these ways.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
import torch.multiprocessing
from numpy.typing import NDArray

from benchmarks.limits import using_threads
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
from parashot.errors import DeviceError
from parashot.questions.statistics import median_interval

SIZES = (64 * 2**10, 2**20, 16 * 2**20)
"""Bytes: a small image, an episode, a batch."""

WAYS = {
    "pickled": "pickled through the pipe, ms",
    "new": "copied to a new shared tensor, ms",
    "reused": "copied to one shared tensor, ms",
}
"""Each way of a message, and its column."""

_AT_LEAST_SECONDS = 0.05
_LEAVE_SECONDS = 10


def measure(quick: bool) -> Section:
    """The round trip of a small message, and every size by every way, in turn."""
    with using_threads(1), peer(max(SIZES)) as other:
        trip = _round_trip(other, quick)
        probes = [trip, *(_message(other, way, length, quick) for length in SIZES for way in WAYS)]
        measured = in_turn(probes, quick)
    return Section([listing("Between two processes", [trip], measured), _by_size(measured)], measured)


@dataclass(frozen=True)
class Peer:
    """Another process at the end of a pipe, and a tensor in memory that both have mapped."""

    pipe: Connection
    shared: torch.Tensor

    def echo(self) -> None:
        """A small message there and back."""
        self.pipe.send(None)
        self.pipe.recv()

    def pickled(self, source: NDArray[np.uint8]) -> int:
        """Send the bytes themselves; all ways return the sum of what the peer has read."""
        return self._answer(source)

    def new(self, source: NDArray[np.uint8]) -> int:
        """Copy to shared memory made for this message and send its handle, as loader workers do."""
        storage = torch.UntypedStorage._new_shared(len(source))
        tensor = torch.tensor([], dtype=torch.uint8).set_(storage)
        return self._answer(tensor.copy_(torch.from_numpy(source)))

    def reused(self, source: NDArray[np.uint8]) -> int:
        """Copy to the tensor that both have and send the length alone."""
        self.shared[: len(source)] = torch.from_numpy(source)
        return self._answer(len(source))

    def _answer(self, message: Any) -> int:
        self.pipe.send(message)
        return int(self.pipe.recv())


@contextmanager
def peer(shared_bytes: int) -> Iterator[Peer]:
    """Start the other process; it ends with the context. `DeviceError` where it has died before."""
    spawn = torch.multiprocessing.get_context("spawn")  # its pipes hand over a tensor's memory
    shared = torch.zeros(shared_bytes, dtype=torch.uint8).share_memory_()
    here, there = spawn.Pipe()
    process = spawn.Process(target=_serve, args=(there, shared), daemon=True)
    process.start()
    there.close()
    other = Peer(here, shared)
    try:
        other.echo()  # it is up
        yield other
    except (EOFError, ConnectionError) as error:
        raise DeviceError("the process at the other end of the pipe has died; is memory short?") from error
    finally:
        here.close()
        process.join(_LEAVE_SECONDS)


def _serve(pipe: Connection, shared: torch.Tensor) -> None:
    """Read a byte of every page of each message and answer with their sum, until the pipe is closed."""
    torch.set_num_threads(1)  # as in a loader's worker
    while True:
        try:
            message = pipe.recv()
        except EOFError:
            return
        pipe.send(_read(message, shared))
        del message  # its memory, too, goes before the next one comes


def _read(message: Any, shared: torch.Tensor) -> int | None:
    """Read an array, as many bytes of `shared` as the message says, or (None) nothing."""
    if message is None:
        return None
    return _page_sum(shared[:message] if isinstance(message, int) else message)


def _page_sum(array: NDArray[np.uint8] | torch.Tensor) -> int:
    """Sum of the first byte of every page."""
    return int(array[:: mmap.PAGESIZE].sum())


def _round_trip(other: Peer, quick: bool) -> Probe:
    def microseconds() -> float:
        return 1e6 * seconds_per_call(other.echo, block_seconds(quick, _AT_LEAST_SECONDS))

    return Probe(
        "round trip of a small message", "µs", microseconds, "one object through a pipe, and one back"
    )


def _message(other: Peer, way: str, length: int, quick: bool) -> Probe:
    source = np.random.default_rng(0).integers(256, size=length, dtype=np.uint8)
    send, expected = getattr(other, way), _page_sum(source)

    def milliseconds() -> float:
        if send(source) != expected:
            raise DeviceError(f"a message of {bytes_said(length)} did not arrive as it was sent ({way})")
        return 1e3 * seconds_per_call(lambda: send(source), block_seconds(quick, _AT_LEAST_SECONDS))

    return Probe(f"{way}, {bytes_said(length)}", "ms", milliseconds)


def _by_size(measured: Series) -> Table:
    rows: list[list[Cell]] = [
        [
            bytes_said(length),
            *(median_interval(measured[f"{way}, {bytes_said(length)}"], RESAMPLING) for way in WAYS),
        ]
        for length in SIZES
    ]
    title = "A message from one process to another, until its receiver says that it has read each page"
    return Table(title, ("message", *WAYS.values()), rows)
