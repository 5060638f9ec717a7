"""Messages between processes of this machine: from a loader's worker to the training, and all-reduces.

A loader's worker hands every batch to the training process in one of three ways: pickled through the pipe,
copied to shared memory made for it, or copied to shared memory that is used again. An all-reduce is what data
parallelism pays per step.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.multiprocessing
from numpy.typing import NDArray
from torch import distributed as dist

from benchmarks.limits import using_threads, wait_for
from benchmarks.probes import Probe, bytes_said, rounds, seconds_per_call
from benchmarks.turns import interleaved, seconds_of
from benchmarks.workload import in_ranks
from parashot.errors import DeviceError

MESSAGE_SIZES = (64 * 2**10, 2**20, 16 * 2**20)
"""Bytes: a small image, an episode, a batch."""

WAYS = {
    "pickled": "pickled through the pipe",
    "new": "copied to a new shared tensor",
    "reused": "copied to one shared tensor",
}

REDUCED_SIZES = tuple(2**power for power in (12, 16, 20, 24, 26))
"""Bytes: 4 KiB to 64 MiB."""

_BLOCK_BYTES = 64 * 2**20
_MOST_CALLS = 200


@contextmanager
def messages(quick: bool) -> Iterator[list[Probe]]:
    """Round trip of a small message, and messages of every size by every way."""

    def milliseconds(way: str, length: int) -> float:
        source = np.random.default_rng(0).integers(256, size=length, dtype=np.uint8)
        if other.send(way, source) != _page_sum(source):
            raise DeviceError(f"a message of {bytes_said(length)} did not arrive as sent ({way})")
        return 1e3 * seconds_per_call(partial(other.send, way, source), quick)

    with using_threads(1), peer(max(MESSAGE_SIZES)) as other:
        how = "until its receiver says that it has read each page"
        yield [
            Probe(
                "round trip of a small message",
                "µs",
                lambda: 1e6 * seconds_per_call(partial(other.ask, None), quick),
                "one object through a pipe, and one back",
            ),
            *(
                Probe(f"{bytes_said(length)} {WAYS[way]}", "ms", partial(milliseconds, way, length), how)
                for length, way in product(MESSAGE_SIZES, WAYS)
            ),
        ]


class Peer:
    """Another process at the end of a pipe, and a tensor in memory that both have mapped."""

    def __init__(self, pipe: Connection, shared: torch.Tensor) -> None:
        self.pipe = pipe
        self.shared = shared

    def send(self, way: str, source: NDArray[np.uint8]) -> int:
        """Send bytes by one of `WAYS` and return the sum that the peer has read."""
        message: Any = source
        if way == "new":  # as loader workers do
            storage = torch.UntypedStorage._new_shared(len(source))
            message = torch.tensor([], dtype=torch.uint8).set_(storage).copy_(torch.from_numpy(source))
        elif way == "reused":
            self.shared[: len(source)] = torch.from_numpy(source)
            message = len(source)
        return self.ask(message)

    def ask(self, message: Any) -> int:
        """Send a message and return the peer's answer."""
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
    try:
        other = Peer(here, shared)
        other.ask(None)  # it is up
        yield other
    except (EOFError, ConnectionError) as error:
        raise DeviceError("the process at the other end of the pipe has died; is memory short?") from error
    finally:
        here.close()
        process.join(10)


def _serve(pipe: Connection, shared: torch.Tensor) -> None:
    """Answer each message with the sum of its pages' first bytes, until the pipe is closed.

    A message is an array, a number of bytes of `shared`, or None for nothing.
    """
    torch.set_num_threads(1)  # as in a loader's worker
    while True:
        try:
            message = pipe.recv()
        except EOFError:
            return
        read = shared[:message] if isinstance(message, int) else message
        pipe.send(0 if read is None else _page_sum(read))
        del message, read  # their memory, too, goes before the next one comes


def _page_sum(array: NDArray[np.uint8] | torch.Tensor) -> int:
    return int(array[:: mmap.PAGESIZE].sum())


# --- all-reduce -----------------------------------------------------------------------------------------


@contextmanager
def all_reduce(quick: bool, device_type: str = "cpu", ranks: int = 2) -> Iterator[list[Probe]]:
    """All-reduces by size of message, between one process per rank; the times are the first rank's."""
    sizes = REDUCED_SIZES[:2] if quick else REDUCED_SIZES
    measured = in_ranks(exchange, device_type, ranks, sizes, 1 + rounds(quick))
    backend = "gloo" if device_type == "cpu" else "nccl"
    yield [
        Probe(
            f"all-reduce of {bytes_said(length)}, {backend}, {ranks} processes",
            "ms",
            iter(measured[str(length)]).__next__,
            f"{length / median(measured[str(length)]) / 1e6:.3g} GB/s: bytes of the message over time",
        )
        for length in sizes
    ]


def exchange(
    rank: int, ranks: int, device: torch.device, sizes: tuple[int, ...], blocks: int
) -> dict[str, list[float]]:
    """Milliseconds of one all-reduce by bytes of its message, item i of all sizes of round i.

    Raises `DeviceError` where a sum is wrong.
    """

    def block(message: torch.Tensor) -> float:
        message.fill_(rank + 1)
        dist.all_reduce(message)  # warms up, and the ranks begin together
        if not bool((message == ranks * (ranks + 1) // 2).all()):
            raise DeviceError(f"an all-reduce of {message.nbytes} bytes gave a wrong sum")
        message.zero_()  # zeros stay zeros, however often they are summed
        calls = max(2, min(_MOST_CALLS, _BLOCK_BYTES // message.nbytes))  # the same on all ranks
        finish = partial(wait_for, str(device))
        return 1e3 * seconds_of(partial(dist.all_reduce, message), calls, finish) / calls

    messages = {str(length): torch.zeros(length // 4, device=device) for length in sizes}
    return interleaved(
        {length: partial(block, each) for length, each in messages.items()}, blocks, 0, rank == 0
    )
