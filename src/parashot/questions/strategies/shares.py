"""Shares of a step's time in computing, messages and waiting, from torch's profiler."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch._C._autograd import DeviceType, _KinetoEvent
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile, record_function

from parashot.parallel.strategy import EXCHANGE
from parashot.questions.strategies.records import StepShares
from parashot.questions.timed import TimedStrategy
from parashot.train.loop import synchronise

STEPS = 7
"""As many blocks as a median needs for its interval (`questions/statistics.py`)."""

_STEP = "parashot:step"

Pieces = npt.NDArray[np.bool_]
"""Which of the pieces of time between two edges [n]."""


class Event(NamedTuple):
    """What the profiler saw on the host (`gpu` is None) or on a GPU; `begin` and `end` in microseconds."""

    name: str
    begin: float
    end: float
    gpu: int | None = None
    is_annotation: bool = False


def profiled_events(timed: TimedStrategy) -> list[Event]:
    """Do a few steps under the profiler, and one before them. Every rank of the strategy calls it.

    What kineto recorded is read as it is: the profiler's own `events()` builds a tree of them, which takes
    longer than the steps.
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
            for _ in range(STEPS + 1):
                with record_function(_STEP):
                    timed.strategy.step(timed.batch)
                    synchronise(context)
    assert profiled.profiler is not None and profiled.profiler.kineto_results is not None
    recorded = profiled.profiler.kineto_results
    return [_event(each, recorded.trace_start_ns()) for each in recorded.events()]


def _event(recorded: _KinetoEvent, start_ns: int) -> Event:
    gpu = recorded.device_index() if recorded.device_type() == DeviceType.CUDA else None
    begin, end = ((each - start_ns) / 1e3 for each in (recorded.start_ns(), recorded.end_ns()))
    return Event(recorded.name(), begin, end, gpu, recorded.is_user_annotation())


@dataclass(frozen=True)
class Timeline:
    """What a host or one GPU did in each piece of time between two `edges`, where an event begins or ends.

    steps: all but the first. edges: microseconds [n + 1]. messages, computing: if they were under way [n].
    """

    steps: Sequence[Event]
    edges: npt.NDArray[np.float64]
    messages: Pieces
    computing: Pieces

    def within(self, events: Iterable[Event]) -> Pieces:
        """Pieces in which at least one of `events` was under way."""
        return _under_way(events, self.edges)

    @property
    def exposed(self) -> Pieces:
        """Messages that computing waits for."""
        return self.messages & ~self.computing

    @property
    def idle(self) -> Pieces:
        """Neither messages nor computing."""
        return ~(self.messages | self.computing)

    def share(self, pieces: Pieces, step: Event) -> float:
        """Part of the time of `step` that lies in `pieces`."""
        begins = self.edges[:-1]
        chosen = pieces & (step.begin <= begins) & (begins < step.end)
        return float(np.diff(self.edges)[chosen].sum() / (step.end - step.begin))


def shares_of(variant: str, rank: int, events: Sequence[Event]) -> list[StepShares]:
    """Shares of the steps among the `events` of a process; the mean over its GPUs."""
    seen = [timeline(events, gpu) for gpu in gpus_of(events)]
    return [
        StepShares(
            variant,
            rank,
            number,
            seconds=(step.end - step.begin) / 1e6,
            exposed=fmean(each.share(each.exposed, step) for each in seen),
            hidden=fmean(each.share(each.messages & each.computing, step) for each in seen),
            idle=fmean(each.share(each.idle, step) for each in seen),
        )
        for number, step in enumerate(seen[0].steps)
    ]


def gpus_of(events: Sequence[Event]) -> list[int | None]:
    """GPUs that the process worked on: several only under DataParallel. [None] on a CPU."""
    found = {each.gpu for each in events if each.gpu is not None and not each.is_annotation}
    return [*sorted(found)] or [None]


def timeline(events: Sequence[Event], gpu: int | None) -> Timeline:
    """When steps ran, messages were under way on a GPU, and something was computed there.

    On GPUs messages are NCCL's kernels and copies from one to another, and computing is all else; on a CPU
    messages are what gloo's threads do, or DataParallel's copies, and computing is every other operator.
    """
    host = [each for each in events if each.gpu is None]
    # what the host annotated stands on the device too, but is no work
    device = [each for each in events if each.gpu is not None and each.gpu == gpu and not each.is_annotation]
    if device:
        messages = [each for each in device if _is_message(each)]
        computing = [each for each in device if not _is_message(each)]
    else:
        messages = [each for each in host if each.name.startswith(("gloo:", "nccl:", EXCHANGE))]
        computing = [each for each in host if each.name.startswith("aten::")]
    by_hand = [each for each in host if each.name.startswith(EXCHANGE)]
    edges = np.unique([edge for each in events for edge in (each.begin, each.end)])
    return Timeline(
        sorted((each for each in host if each.name == _STEP), key=lambda each: each.begin)[1:],
        edges,
        _under_way(messages, edges),
        _under_way(computing, edges) & ~_under_way(by_hand, edges),
    )


def _is_message(event: Event) -> bool:
    return "nccl" in event.name.lower() or event.name.startswith("Memcpy PtoP")


def _under_way(events: Iterable[Event], edges: npt.NDArray[np.float64]) -> Pieces:
    """In which pieces of time between `edges` more of `events` have begun than ended."""
    spans = np.array([(each.begin, each.end) for each in events]).reshape(-1, 2)
    begun, ended = (np.searchsorted(np.sort(each), edges[:-1], side="right") for each in spans.T)
    return begun > ended
