"""Shares of a step's time in computing, messages and waiting, from torch's profiler."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch._C._autograd import DeviceType
from torch._C._profiler import _ExperimentalConfig
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile, record_function

from parashot.parallel.strategy import EXCHANGE
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
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Warning: Profiler clears events")  # there is one cycle
        with profile(activities=activities, experimental_config=everywhere) as profiled:
            for number in range(STEPS + 1):
                with record_function(_STEP):
                    timed.strategy.step(timed.batches[number % len(timed.batches)])
                    synchronise(context)
        return list(profiled.events() or [])


def shares_of(events: Sequence[FunctionEvent]) -> list[Shares]:
    """Shares of each step among `events`, in the order of the steps."""
    found = []
    all_steps, all_messages, all_computing = timeline(events)
    for step in all_steps:
        whole = step[1] - step[0]
        messages, computing = within(all_messages, [step]), within(all_computing, [step])
        hidden = length(within(messages, computing))
        exposed = length(messages) - hidden
        idle = whole - length(computing) - exposed
        found.append(Shares(whole / 1e6, exposed / whole, hidden / whole, max(0.0, idle / whole)))
    return found


def timeline(events: Sequence[FunctionEvent]) -> tuple[list[Span], list[Span], list[Span]]:
    """When steps ran, messages were under way, and something was computed.

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
    return steps, messages, without(computing, by_hand)


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
