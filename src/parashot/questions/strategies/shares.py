"""Shares of a step's time in computing, messages and waiting, from torch's profiler."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

import torch
from torch._C._autograd import DeviceType, _KinetoEvent
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile, record_function

from parashot.parallel.strategy import EXCHANGE
from parashot.questions.timed import TimedStrategy
from parashot.train.loop import synchronise

STEPS = 7
"""As many blocks as a median needs for its interval (`questions/statistics.py`)."""

_STEP = "parashot:step"

Span = tuple[float, float]
"""Begin and end, in microseconds."""


class Event(NamedTuple):
    """What the profiler saw on the host (`gpu` is None) or on a GPU; `begin` and `end` in microseconds."""

    name: str
    begin: float
    end: float
    gpu: int | None = None
    is_annotation: bool = False


class Shares(NamedTuple):
    """Seconds of one step on one process, and the shares of them."""

    seconds: float
    exposed: float
    hidden: float
    idle: float


def profiled_events(timed: TimedStrategy) -> list[Event]:
    """Do a few steps under the profiler, the first of which is to be left out.

    Every rank of the strategy calls it. What kineto recorded is read as it is: the profiler's own `events()`
    builds a tree of them, which takes longer than the steps.
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
    assert profiled.profiler is not None and profiled.profiler.kineto_results is not None
    recorded = profiled.profiler.kineto_results
    return [_event(each, recorded.trace_start_ns()) for each in recorded.events()]


def _event(recorded: _KinetoEvent, start_ns: int) -> Event:
    gpu = recorded.device_index() if recorded.device_type() == DeviceType.CUDA else None
    begin, end = ((each - start_ns) / 1e3 for each in (recorded.start_ns(), recorded.end_ns()))
    return Event(recorded.name(), begin, end, gpu, recorded.is_user_annotation())


def shares_of(events: Sequence[Event]) -> list[Shares]:
    """Shares of each step among `events`, in the order of the steps; the mean over the GPUs of a process."""
    per_device = [_shares_on(events, gpu) for gpu in gpus_of(events)]
    return [Shares(*map(fmean, zip(*each, strict=True))) for each in zip(*per_device, strict=True)]


def _shares_on(events: Sequence[Event], gpu: int | None) -> list[Shares]:
    found = []
    all_steps, all_messages, all_computing = timeline(events, gpu)
    for step in all_steps:
        whole = step[1] - step[0]
        messages, computing = within(all_messages, [step]), within(all_computing, [step])
        hidden = length(within(messages, computing))
        exposed = length(messages) - hidden
        idle = whole - length(computing) - exposed
        found.append(Shares(whole / 1e6, exposed / whole, hidden / whole, max(0.0, idle / whole)))
    return found


def gpus_of(events: Sequence[Event]) -> list[int | None]:
    """GPUs that the process worked on: several only under DataParallel. [None] on a CPU."""
    found = {each.gpu for each in events if each.gpu is not None and not each.is_annotation}
    return [*sorted(found)] or [None]


def timeline(events: Sequence[Event], gpu: int | None) -> tuple[list[Span], list[Span], list[Span]]:
    """When steps ran, messages were under way on a GPU, and something was computed there.

    On GPUs messages are NCCL's kernels and copies from one to another, and computing is all else; on a CPU
    messages are what gloo's threads do, or DataParallel's copies, and computing is every other operator.
    """
    host = [each for each in events if each.gpu is None]
    # what the host annotated stands on the device too, but is no work
    device = [each for each in events if each.gpu is not None and each.gpu == gpu and not each.is_annotation]
    steps = spans_of(each for each in host if each.name == _STEP)
    if device:
        messages = spans_of(each for each in device if _is_message(each))
        computing = spans_of(each for each in device if not _is_message(each))
    else:
        messages = spans_of(each for each in host if each.name.startswith(("gloo:", "nccl:", EXCHANGE)))
        computing = spans_of(each for each in host if each.name.startswith("aten::"))
    by_hand = spans_of(each for each in host if each.name.startswith(EXCHANGE))
    return steps, messages, without(computing, by_hand)


def _is_message(event: Event) -> bool:
    return "nccl" in event.name.lower() or event.name.startswith("Memcpy PtoP")


def spans_of(events: Iterable[Event]) -> list[Span]:
    return merged((each.begin, each.end) for each in events)


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
