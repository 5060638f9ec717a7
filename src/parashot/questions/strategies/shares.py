"""Shares of a step's time in computing, messages and waiting, from torch's profiler."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import distributed as dist
from torch._C._autograd import DeviceType
from torch._C._profiler import _ExperimentalConfig
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile, record_function

from parashot.parallel.context import Context
from parashot.parallel.exchange import from_all_ranks
from parashot.parallel.strategy import EXCHANGE
from parashot.questions.strategies.records import StepShares
from parashot.questions.timed import TimedStrategy
from parashot.train.loop import synchronise

STEPS = 3
_STEP = "parashot:step"

Span = tuple[float, float]
"""Begin and end, in microseconds."""


class Shares(NamedTuple):
    """Seconds of one step on one process, and the shares of them."""

    seconds: float
    exposed: float
    hidden: float
    idle: float


class Timeline(NamedTuple):
    """When steps ran, messages were under way, and something was computed."""

    steps: list[Span]
    messages: list[Span]
    computing: list[Span]


def profile_shares(timed: TimedStrategy) -> list[Shares]:
    """Shares of a few steps. Every rank of the strategy calls it."""
    return shares_of(profiled_events(timed))[1:]


def profiled_events(timed: TimedStrategy) -> list[FunctionEvent]:
    """Do a few steps under the profiler, the first of which is to be left out.

    Every rank of the strategy calls it.
    """
    torch.set_num_threads(timed.threads)
    context = timed.strategy.context
    activities = [ProfilerActivity.CPU]
    if context.device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    everywhere = _ExperimentalConfig(profile_all_threads=True)  # DataParallel's threads are there already
    with profile(activities=activities, experimental_config=everywhere) as profiled:
        for number in range(STEPS + 1):
            with record_function(_STEP):
                timed.strategy.step(timed.batches[number % len(timed.batches)])
                synchronise(context)
    return list(profiled.events() or [])


def shares_of(events: Sequence[FunctionEvent]) -> list[Shares]:
    """Shares of each step among `events`, in the order of the steps."""
    steps, messages, computing = timeline(events)
    return [_shares(step, messages, computing) for step in steps]


def timeline(events: Sequence[FunctionEvent]) -> Timeline:
    """Order `events`.

    On GPUs messages are NCCL's kernels and computing is all others; on a CPU messages are what gloo's threads
    do, or DataParallel's copies, and computing is every other operator.
    """
    host = [each for each in events if each.device_type == DeviceType.CPU]
    # What was annotated on the host stands on the device too, from its first kernel to its last: no work.
    device = [each for each in events if each.device_type == DeviceType.CUDA and not each.is_user_annotation]
    steps = spans_of(each for each in host if each.name == _STEP)
    if device:
        messages = spans_of(each for each in device if "nccl" in each.name.lower())
        computing = spans_of(each for each in device if "nccl" not in each.name.lower())
    else:
        messages = spans_of(each for each in host if each.name.startswith(("gloo:", "nccl:", EXCHANGE)))
        computing = spans_of(each for each in host if each.name.startswith("aten::"))
    by_hand = spans_of(each for each in host if each.name.startswith(EXCHANGE))
    return Timeline(steps, messages, without(computing, by_hand))


def merge_shares(
    variant: str, mine: Sequence[Shares], context: Context, control: dist.ProcessGroup | None
) -> list[StepShares]:
    """Combine the shares of all ranks; ranks that took no part have none."""
    return [
        StepShares(variant, rank, step, *each)
        for rank, steps in enumerate(from_all_ranks(mine, context, control))
        for step, each in enumerate(steps)
    ]


def _shares(step: Span, messages: Sequence[Span], computing: Sequence[Span]) -> Shares:
    whole = step[1] - step[0]
    messages, computing = within(messages, [step]), within(computing, [step])
    hidden = length(within(messages, computing))
    exposed = length(messages) - hidden
    idle = whole - length(computing) - exposed
    return Shares(whole / 1e6, exposed / whole, hidden / whole, max(0.0, idle / whole))


def spans_of(events: Iterable[FunctionEvent]) -> list[Span]:
    return merged((float(each.time_range.start), float(each.time_range.end)) for each in events)


# --- spans: sorted, apart from each other -----------------------------------------------------------------


def merged(spans: Iterable[Span]) -> list[Span]:
    """Join those that touch or overlap."""
    result: list[Span] = []
    for begin, end in sorted(spans):
        if result and begin <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        else:
            result.append((begin, end))
    return result


def within(spans: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    """What lies in both."""
    result, first = [], 0
    for begin, end in spans:
        while first < len(others) and others[first][1] <= begin:
            first += 1
        place = first
        while place < len(others) and others[place][0] < end:
            result.append((max(begin, others[place][0]), min(end, others[place][1])))
            place += 1
    return result


def without(spans: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    """What lies in `spans` alone."""
    edges = [float("-inf"), *(edge for other in others for edge in other), float("inf")]
    gaps = list(zip(edges[::2], edges[1::2], strict=True))
    return within(spans, gaps)


def length(spans: Iterable[Span]) -> float:
    """All together."""
    return sum(end - begin for begin, end in spans)
