"""A closer look at the way that is recommended: where the time of a step goes, and larger batches.

The parts of a step are the profiler's: forward, backward, optimizer, exchange, idle. A batch is doubled until
no memory, data or time is left for more; each size is measured by a launch of its own.
"""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from statistics import fmean

import torch
from torch import nn
from torch.profiler import record_function

from parashot.errors import ParashotError
from parashot.hardware import usable_memory_bytes
from parashot.parallel.context import Context, Placement
from parashot.parallel.exchange import from_all_ranks
from parashot.parallel.launch import launch_apart
from parashot.progress import passing
from parashot.questions.own.records import OwnWay, SizeRow, StepParts
from parashot.questions.strategies.shares import Event, gpus_of, profiled_events, timeline
from parashot.questions.timed import TimedStrategy
from parashot.questions.ways.measure import FULL, ReadyWays, Trainings, for_ways, in_whole_turns

ROOM = 0.85
"""Share of the memory that a batch may take: what is free is in pieces, and other things need some."""

LEAST_STEPS, LEAST_SECONDS = 3, 1.0
"""What a size is timed for."""

_FORWARD, _OPTIMIZER = "parashot:forward", "Optimizer.step#"  # the second is torch's own


def parts_rank(context: Context, trainings: Trainings[OwnWay], ways: Sequence[OwnWay]) -> list[StepParts]:
    """Parts of a step in each of `ways`, of this rank. Every rank calls it."""
    ready, found = ReadyWays(context, trainings, ways), []
    for way in ways:
        context.wait_for_all()
        strategy = ready.strategy(way)
        if strategy is not None:
            task = ready.trainings[way.way].task
            plan = strategy.plan(task.batchsz, task.batchsz, strategy.context)
            (batch,) = task.ready_batches(plan, 1, strategy.context)
            timed = TimedStrategy(strategy, batch, way.threads_per_replica)
            with _forward_annotated(strategy.model):
                found.append(parts_of(way.way, profiled_events(timed)))
    ready.close()
    return found


def parts_of(way: str, events: Sequence[Event]) -> StepParts:
    """Shares of the steps among `events`, the mean over steps and the GPUs of the process.

    What is computed after the forward pass and before the optimizer's step counts as backward. What moves
    while something is computed costs nothing: only the exchange that is waited for is counted.
    """
    found: dict[str, list[float]] = {}
    for gpu in gpus_of(events):
        seen = timeline(events, gpu)
        here = [each for each in events if each.gpu == gpu]
        forward, optimizer = (
            seen.computing & seen.within(each for each in here if each.name.startswith(name))
            for name in (_FORWARD, _OPTIMIZER)
        )
        parts = {
            "forward": forward,
            "backward": seen.computing & ~forward & ~optimizer,
            "optimizer": optimizer,
            "exchange": seen.exposed,
            "idle": seen.idle,
        }
        for name, pieces in parts.items():
            found.setdefault(name, []).extend(seen.share(pieces, step) for step in seen.steps)
    return StepParts(way, **{name: fmean(each) for name, each in found.items()})


@contextmanager
def _forward_annotated(module: nn.Module) -> Iterator[None]:
    """Within it, the profiler shows forward passes of `module`."""
    here = threading.local()  # torch.nn.DataParallel calls it in several threads

    def begin(*_: object) -> None:
        here.annotation = record_function(_FORWARD)
        here.annotation.__enter__()

    def end(*_: object) -> None:
        here.annotation.__exit__(None, None, None)

    hooks = [module.register_forward_pre_hook(begin), module.register_forward_hook(end)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def measure_sizes(
    trainings: Trainings[OwnWay],
    way: OwnWay,
    samples: int,
    placement: Placement,
    ends: float,
    rows: list[SizeRow],
) -> str:
    """Add a row for each size from that of `way` on to `rows`; return why larger ones were not tried.

    samples: of the data set. ends: by the clock `time.monotonic`.
    """
    all_bytes = 0
    while True:
        size = way.batchsz * 2 ** len(rows)
        if reason := _reason_to_stop(rows, size, samples, all_bytes, placement, ends):
            return reason
        passing("batch size: %d", size)
        larger, begin = replace(way, batchsz=size), time.monotonic()
        fitted, processes = for_ways([larger], placement)
        try:
            seconds, memory, all_bytes = launch_apart(size_rank, fitted, processes, trainings, larger)
        except ParashotError as error:
            if any(each in str(error) for each in FULL):
                return f"{size} samples do not fit in memory"
            return f"a step of {size} samples fails: {error}"
        rows.append(SizeRow(size, seconds, memory, time.monotonic() - begin))


def size_rank(context: Context, trainings: Trainings[OwnWay], way: OwnWay) -> tuple[float, int, int]:
    """Seconds per step, the peak memory and all memory in bytes: of the machine, or of the first GPU."""
    ready = ReadyWays(context, trainings, [way])
    steps = max(LEAST_STEPS, int(LEAST_SECONDS / ready.step_seconds[way.way]))
    steps = in_whole_turns(steps, ready.turns[way.way])
    timed = ready.timed(way, steps, place=1)[0]
    ready.close()
    if context.device.type == "cuda":
        return timed.seconds / steps, torch.cuda.max_memory_reserved(), torch.cuda.mem_get_info()[1]
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return timed.seconds / steps, sum(from_all_ranks(own, context, patient=True)), usable_memory_bytes()


def _reason_to_stop(
    rows: list[SizeRow], size: int, samples: int, all_bytes: int, placement: Placement, ends: float
) -> str:
    if size > samples:
        return f"the data set has {samples} samples"
    if time.monotonic() + (2 * rows[-1].took_seconds if rows else 0) > ends:
        return "no time was left for them"
    if not rows:
        return ""
    last = rows[-1]
    if placement.device_type == "cpu" and 2 * last.memory_bytes > ROOM * all_bytes:
        return f"{size} samples may not fit in memory"
    if placement.device_type == "cuda" and last.memory_bytes > ROOM * all_bytes:
        return f"{last.batchsz} samples leave too little memory free"
    return ""
