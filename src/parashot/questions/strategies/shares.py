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


def profile_shares(timed: TimedStrategy) -> list[Shares]:
    """Do a few steps under the profiler, after one that is left out. Every rank of the strategy calls it."""
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
    events = profiled.events()
    return shares_of(events if events is not None else [])[1:]


def shares_of(events: Iterable[FunctionEvent]) -> list[Shares]:
    """Shares of each step among `events`, in the order of the steps.

    On GPUs messages are NCCL's kernels and computing is all others; on a CPU messages are what gloo's threads
    do, or DataParallel's copies, and computing is every other operator.
    """
    events = list(events)
    host = [each for each in events if each.device_type == DeviceType.CPU]
    # What was annotated on the host stands on the device too, from its first kernel to its last: no work.
    device = [each for each in events if each.device_type == DeviceType.CUDA and not each.is_user_annotation]
    steps = _spans(each for each in host if each.name == _STEP)
    if device:
        messages = _spans(each for each in device if "nccl" in each.name.lower())
        computing = _spans(each for each in device if "nccl" not in each.name.lower())
    else:
        messages = _spans(each for each in host if each.name.startswith(("gloo:", "nccl:", EXCHANGE)))
        computing = _spans(each for each in host if each.name.startswith("aten::"))
    by_hand = _spans(each for each in host if each.name.startswith(EXCHANGE))
    computing = without(computing, by_hand)
    return [_shares(step, messages, computing) for step in steps]


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


def _spans(events: Iterable[FunctionEvent]) -> list[Span]:
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
