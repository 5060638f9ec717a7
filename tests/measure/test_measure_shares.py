"""Shares of a step's time: spans of time by hand, and a real step of two processes under the profiler."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_tasks import alone
from standing_ranks import StandingRanks
from tiny_data import tiny_params
from torch.autograd import DeviceType
from torch.autograd.profiler_util import FunctionEvent

from parashot.parallel.context import Context, control_group
from parashot.parallel.registry import STRATEGIES, step_options
from parashot.questions.strategies.records import StepShares
from parashot.questions.strategies.shares import (
    length,
    merge_shares,
    merged,
    profile_shares,
    shares_of,
    within,
    without,
)
from parashot.questions.timed import timed_strategy
from parashot.tasks.relation import RelationTask

SPANS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 10)).map(lambda s: (s[0], s[0] + s[1])))


def ticks(spans: list[tuple[float, float]]) -> set[int]:
    """The whole numbers t for which [t, t + 1) is covered."""
    return {tick for begin, end in spans for tick in range(int(begin), int(end))}


@given(SPANS, SPANS)
def test_spans_are_sets_of_moments(
    first: list[tuple[float, float]], second: list[tuple[float, float]]
) -> None:
    one, two = merged(first), merged(second)
    assert ticks(one) == ticks(first)
    assert length(one) == len(ticks(first))
    assert ticks(within(one, two)) == ticks(first) & ticks(second)
    assert ticks(without(one, two)) == ticks(first) - ticks(second)


def event(name: str, begin: int, end: int, device: DeviceType, **more: bool) -> FunctionEvent:
    return FunctionEvent(0, name, 0, begin, end, device_type=device, **more)


def test_what_the_host_annotated_is_no_work_of_a_gpu() -> None:
    """On the device an annotation reaches from its first kernel to its last, with all gaps between."""
    seen = [
        event("parashot:step", 0, 100, DeviceType.CPU, is_user_annotation=True),
        event("parashot:step", 10, 90, DeviceType.CUDA, is_user_annotation=True),
        event("convolution", 10, 40, DeviceType.CUDA),
        event("nccl:all_reduce", 30, 90, DeviceType.CUDA, is_user_annotation=True),
        event("ncclDevKernel_AllReduce", 30, 70, DeviceType.CUDA),
        event("multi_tensor_apply", 70, 90, DeviceType.CUDA),
    ]
    (share,) = shares_of(seen)
    assert (share.hidden, share.exposed) == pytest.approx((0.1, 0.3))
    assert share.idle == pytest.approx(0.2)


def profiled(context: Context, name: str, packed: Path) -> list[StepShares]:
    params = tiny_params({"model.embedding": "bottleneck"})
    task = RelationTask(params, packed)
    timed = timed_strategy(name, task, step_options(params.train), context, params.parallel, batchsz=4)
    shares = merge_shares(name, profile_shares(timed), context, control_group(context))
    timed.strategy.close()
    return shares


@pytest.mark.parametrize("name", ["serial", "dp", "ddp", "allreduce", "layer_split"])
def test_a_real_step_is_shared_out(name: str, ranks: StandingRanks, tiny_packed: Path) -> None:
    single = STRATEGIES[name].processes(2) == 1
    shares = profiled(alone(2), name, tiny_packed) if single else ranks(2, profiled, name, tiny_packed)
    assert {each.rank for each in shares} == ({0} if single else {0, 1})
    assert len(shares) == (3 if single else 6)
    for each in shares:
        computing = 1 - each.exposed - each.idle
        assert each.seconds > 0
        assert 0.2 < computing <= 1
        assert min(each.exposed, each.hidden, each.idle) >= 0
    under_way = [each.exposed + each.hidden for each in shares]
    assert (max(under_way) == 0) if name == "serial" else (min(under_way) > 0)
