"""A step computed in k parts, one after another, against the same step at once."""

from __future__ import annotations

import pytest
import torch
from small_tasks import TOLERANCE, State, alone, assert_equal, build_relation, episode_batch, on_ranks
from standing_ranks import StandingRanks
from torch import distributed as dist

from parashot.parallel.context import Context


def stepped(context: Context, name: str, parts: int, training: bool = False) -> tuple[State, torch.Tensor]:
    """State after a step of 7 episodes, and the step's sums over all ranks."""
    strategy = build_relation(
        context, name, {"train.batchsz": 7, "train.accumulate": parts}, training=training
    )
    sums = strategy.step(episode_batch(strategy, 7))
    if context.world_size > 1:
        dist.all_reduce(sums)
    state = strategy.state_dict()
    strategy.close()
    return state, sums


@pytest.mark.parametrize(("name", "parts"), [("serial", 3), ("dp", 7), ("ddp", 7)])
def test_k_parts_equal_one_step_where_batch_norm_has_fixed_statistics(
    name: str, parts: int, ranks: StandingRanks
) -> None:
    """Ranks have 4 and 3 episodes, fewer than parts."""
    whole, sums = stepped(alone(), "serial", 1)
    state, found = on_ranks(ranks, name, stepped, parts)
    assert_equal(state, whole)
    torch.testing.assert_close(found, sums, rtol=0, atol=TOLERANCE)


def test_in_training_mode_they_differ_for_batch_norm_sees_a_part_at_a_time() -> None:
    (_, once), (_, thrice) = (stepped(alone(), "serial", parts, training=True) for parts in (1, 3))
    assert abs(thrice[0] - once[0]) > 1e-3
