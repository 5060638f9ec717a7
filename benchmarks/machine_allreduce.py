"""All-reduce between processes by size of message: what data parallelism pays per step."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import distributed as dist

from benchmarks.limits import wait_for
from benchmarks.outcome import RESAMPLING, Cell, Table
from benchmarks.probes import Section, bytes_said, rounds
from parashot.errors import DeviceError
from parashot.hardware import usable_cores
from parashot.parallel.context import Context, Placement
from parashot.parallel.launch import launch
from parashot.questions.statistics import median_interval

SIZES = tuple(2**power for power in (12, 16, 20, 24, 26))
"""Bytes: 4 KiB to 64 MiB."""

RANKS = 2
"""Processes over gloo on a CPU: the fewest that exchange anything."""

_QUICK_SIZES = SIZES[:2]
_BLOCK_BYTES = 64 * 2**20
_MOST_CALLS = 200


@dataclass(frozen=True)
class Plan:
    """What every rank does; `calls` of a block follow from the size, so that all ranks agree on them."""

    sizes: tuple[int, ...]
    rounds: int

    def calls(self, size_bytes: int) -> int:
        """All-reduces in a row behind one number."""
        return max(2, min(_MOST_CALLS, _BLOCK_BYTES // size_bytes))


def measure(quick: bool) -> Section:
    """Two processes of this machine over gloo."""
    cores = usable_cores()
    placement = Placement("cpu", RANKS, max(1, cores // RANKS), cores)
    return measure_on(placement, quick)


def measure_on(placement: Placement, quick: bool) -> Section:
    """One process per replica; the times are those of the first rank."""
    plan = Plan(_QUICK_SIZES if quick else SIZES, rounds(quick))
    measured = launch(exchange, placement, placement.replicas, plan)
    assert measured is not None  # only a rank of torchrun gets nothing
    backend = "gloo" if placement.device_type == "cpu" else "nccl"
    title = f"All-reduce over {backend} between {placement.replicas} processes"
    return Section(
        [_table(title, measured)],
        {f"{backend}, {bytes_said(length)}": seconds for length, seconds in measured.items()},
    )


def exchange(context: Context, plan: Plan) -> dict[int, list[float]]:
    """Seconds of one all-reduce by bytes of its message, item i of all sizes from round i."""
    messages = {length: torch.zeros(length // 4, device=context.device) for length in plan.sizes}
    for message in messages.values():
        check_sum(message, context)
    measured: dict[int, list[float]] = {length: [] for length in messages}
    for number in range(-1, plan.rounds):  # the first warms up
        for length, message in messages.items():
            seconds = _block(message, plan.calls(length))
            if number >= 0:
                measured[length].append(seconds)
    return measured


def _block(message: torch.Tensor, calls: int) -> float:
    """Seconds of one of `calls` all-reduces in a row; the ranks begin together."""
    dist.barrier()
    wait_for(str(message.device))
    begin = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(message)
    wait_for(str(message.device))
    return (time.perf_counter() - begin) / calls


def check_sum(message: torch.Tensor, context: Context) -> None:
    """All-reduce a message of `rank + 1` and check that each element is the sum; zeros remain."""
    message.fill_(context.rank + 1)
    dist.all_reduce(message)
    if not bool((message == context.ranks * (context.ranks + 1) // 2).all()):
        raise DeviceError(
            f"an all-reduce of {bytes_said(message.nbytes)} between {context.ranks} ranks gave a wrong sum"
        )
    message.zero_()  # which stay zeros, however often they are summed


def _table(title: str, measured: dict[int, list[float]]) -> Table:
    rows: list[list[Cell]] = []
    for length, series in measured.items():
        seconds = median_interval(series, RESAMPLING)
        rows.append([bytes_said(length), seconds.scaled(1e3), seconds.reciprocal(length / 1e9)])
    return Table(title, ("message", "ms", "bytes of the message over time, GB/s"), rows)
