"""Larger batches in the way that is recommended: doubled until no memory, data or time is left for more.

Each size is measured by a run of its own, in fresh processes.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from dataclasses import replace
from time import monotonic

import torch

from parashot.errors import DeviceError
from parashot.hardware import usable_memory_bytes
from parashot.parallel.context import Context, Placement
from parashot.parallel.exchange import from_all_ranks
from parashot.parallel.launch import launch
from parashot.progress import passing
from parashot.questions.own.records import OwnWay, SizeRow
from parashot.questions.ways.measure import ReadyWays, Trainings, for_ways

ROOM = 0.85
"""Share of the memory that a batch may take: what is free is in pieces, and other things need some."""

LEAST_STEPS, LEAST_SECONDS = 3, 1.0
"""What a size is timed for."""


def measure_sizes(
    trainings: Trainings[OwnWay],
    way: OwnWay,
    samples: int,
    placement: Placement,
    ends: float,
    found: Callable[[SizeRow], None],
) -> str:
    """Hand a row for each size from that of `way` on to `found`; return why larger ones were not tried.

    samples: of the data set. ends: by the clock `time.monotonic`.
    """
    rows: list[SizeRow] = []
    while True:
        size = way.batchsz * 2 ** len(rows)
        reason = _reason_to_stop(rows, size, samples, placement, ends)
        if reason:
            return reason
        passing("batch size: %d", size)
        try:
            rows.append(_measured(trainings, replace(way, batchsz=size), placement))
        except DeviceError as error:
            if "out of memory" not in str(error):
                raise
            return f"{size} samples do not fit in memory"
        found(rows[-1])


def size_rank(context: Context, trainings: Trainings[OwnWay], way: OwnWay) -> tuple[float, int]:
    """Seconds per step, and the peak memory in bytes: of all ranks, or of the first GPU."""
    ready = ReadyWays(context, trainings, [way])
    steps = max(LEAST_STEPS, int(LEAST_SECONDS / ready.first_seconds[way.way]))
    timed = ready.timed(way, steps)[0]
    ready.close()
    if context.device.type == "cuda":
        return timed.seconds / steps, torch.cuda.max_memory_reserved()
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return timed.seconds / steps, sum(from_all_ranks(own, context, ready.control))


def _measured(trainings: Trainings[OwnWay], way: OwnWay, placement: Placement) -> SizeRow:
    placement, processes = for_ways([way], placement)
    begin = monotonic()
    measured = launch(size_rank, placement, processes, trainings, way)
    assert measured is not None  # this is no rank of torchrun
    return SizeRow(way.batchsz, *measured, monotonic() - begin)


def _reason_to_stop(rows: list[SizeRow], size: int, samples: int, placement: Placement, ends: float) -> str:
    if size > samples:
        return f"the data set has {samples} samples"
    if monotonic() + (2 * rows[-1].took_seconds if rows else 0) > ends:
        return "no time was left for them"
    if not rows:
        return ""
    last = rows[-1]
    if placement.device_type == "cpu" and 2 * last.memory_bytes > ROOM * usable_memory_bytes():
        return f"{size} samples may not fit in memory"
    if placement.device_type == "cuda" and last.memory_bytes > ROOM * torch.cuda.mem_get_info()[1]:
        return f"{last.batchsz} samples leave too little memory free"
    return ""
