"""Rounds of what is compared, and what the model of cost is fitted to: every size in every round."""

from __future__ import annotations

import pytest
from small_tasks import VectorTask, alone
from standing_ranks import StandingRanks
from tiny_data import tiny_params

from parashot.parallel.context import Context, control_group
from parashot.parallel.strategy import StepOptions
from parashot.questions.scaling.measure import (
    MESSAGE_BYTES,
    CostBlocks,
    local_sizes,
    new_messages,
    ready_sizes,
    time_round,
)
from parashot.questions.timed import in_turn

SIZES, ROUNDS = (1, 2, 4), 2


def _measure(context: Context) -> CostBlocks:
    control, blocks = control_group(context), CostBlocks()
    task = VectorTask(batchsz=SIZES[-1])
    sizes = ready_sizes(context, task, StepOptions(), tiny_params().parallel)
    messages = new_messages(context)
    for number in range(ROUNDS):
        blocks.add(time_round(context, sizes, messages, number, control))
    return blocks


def test_a_lone_replica_sends_nothing() -> None:
    blocks = _measure(alone())
    assert blocks.messages == []
    assert [(each.round, each.busy, each.episodes) for each in blocks.steps] == [
        (number, 1, size) for number in range(ROUNDS) for size in SIZES
    ]
    assert all(each.seconds > 0 for each in blocks.steps)


def test_two_replicas_step_alone_and_together_and_send(ranks: StandingRanks) -> None:
    blocks = ranks(2, _measure)
    assert [(each.round, each.episodes, each.busy) for each in blocks.steps] == [
        (number, size, busy) for number in range(ROUNDS) for size in SIZES for busy in (1, 2)
    ]
    assert [(each.round, each.bytes) for each in blocks.messages] == [
        (number, size) for number in range(ROUNDS) for size in MESSAGE_BYTES
    ]
    assert {each.ranks for each in blocks.messages} == {2}
    assert all(each.seconds > 0 for each in (*blocks.steps, *blocks.messages))


@pytest.mark.parametrize(
    ("batchsz", "sizes"),
    [(1, [1, 2, 3]), (2, [1, 2, 3]), (3, [1, 2, 3]), (8, [1, 2, 4, 8]), (30, [4, 8, 15, 30])],
)
def test_a_line_needs_three_sizes(batchsz: int, sizes: list[int]) -> None:
    assert local_sizes(batchsz) == sizes


def test_blocks_are_interleaved_and_warm_ups_are_left_out() -> None:
    order: list[str] = []

    def block(name: str) -> float:
        order.append(name)
        return float(len(order))

    measured = in_turn({"a": lambda: block("a"), "b": lambda: block("b")}, rounds=3, warmups=2)
    assert order == ["a", "b"] * 5
    assert measured == {"a": [5.0, 7.0, 9.0], "b": [6.0, 8.0, 10.0]}
