"""Where the time of a step goes, by the profiler: forward, backward, optimizer, exchange, idle."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean

from torch import nn
from torch._C._autograd import DeviceType
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import record_function

from parashot.parallel.context import Context
from parashot.questions.own.records import OwnWay, StepParts
from parashot.questions.strategies.shares import length, profiled_events, spans_of, timeline, within
from parashot.questions.timed import TimedStrategy
from parashot.questions.ways.measure import ReadyWays, Trainings
from parashot.task import Batch

_FORWARD, _OPTIMIZER = "parashot:forward", "Optimizer.step#"  # the second is torch's own


def parts_rank(context: Context, trainings: Trainings[OwnWay], ways: Sequence[OwnWay]) -> list[StepParts]:
    """Parts of a step in each of `ways`, of this rank. Every rank calls it."""
    ready, found = ReadyWays(context, trainings, ways), []
    for way in ways:
        ready.wait()
        strategy = ready.strategy(way)
        if strategy is not None:
            task = ready.trainings[way.way].task
            plan = strategy.plan(task.batchsz, task.batchsz, strategy.context)
            start_seconds = _seconds_to_start(task.batches(plan, strategy.context))
            batches = task.ready_batches(plan, 1, strategy.context)
            timed = TimedStrategy(strategy, batches, way.threads_per_replica)
            with _forward_annotated(strategy.model):
                found.append(parts_of(way.way, profiled_events(timed), start_seconds))
    ready.close()
    return found


def _seconds_to_start(batches: Iterator[Batch]) -> float:
    """Seconds until the first batch is there."""
    begin = time.perf_counter()
    next(batches)
    return time.perf_counter() - begin


def parts_of(way: str, events: Sequence[FunctionEvent], start_seconds: float) -> StepParts:
    """Shares of the steps among `events` but the first, the mean over steps.

    What is computed after the forward pass and before the optimizer's step counts as backward. What moves
    while something is computed costs nothing: only the exchange that is waited for is counted.
    """
    steps, messages, computing = timeline(events)
    on_gpu = any(each.device_type == DeviceType.CUDA for each in events)
    kind = DeviceType.CUDA if on_gpu else DeviceType.CPU
    phases = {
        name: spans_of(each for each in events if each.device_type == kind and each.name.startswith(name))
        for name in (_FORWARD, _OPTIMIZER)
    }
    found = []
    for step in steps[1:]:
        whole, busy = step[1] - step[0], within(computing, [step])
        forward, optimizer = (length(within(busy, phases[name])) / whole for name in (_FORWARD, _OPTIMIZER))
        moved = within(messages, [step])
        exchange = (length(moved) - length(within(moved, busy))) / whole
        backward = length(busy) / whole - forward - optimizer
        found.append((forward, backward, optimizer, exchange, 1 - length(busy) / whole - exchange))
    means = (max(0.0, fmean(each)) for each in zip(*found, strict=True))
    forward, backward, optimizer, exchange, idle = means
    return StepParts(way, forward, backward, optimizer, exchange, idle, start_seconds)


@contextmanager
def _forward_annotated(module: nn.Module) -> Iterator[None]:
    """Within it, the profiler shows forward passes of `module`."""
    annotations = []

    def begin(*_: object) -> None:
        annotations.append(record_function(_FORWARD))
        annotations[-1].__enter__()

    def end(*_: object) -> None:
        annotations.pop().__exit__(None, None, None)

    hooks = [module.register_forward_pre_hook(begin), module.register_forward_hook(end)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
