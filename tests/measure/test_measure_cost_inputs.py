"""What the model of cost is fitted to: every size in every round, alone and with all ranks busy."""

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
