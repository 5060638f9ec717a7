"""A step computed in k parts, one after another, against the same step at once."""

from __future__ import annotations

import pytest
import torch
from small_tasks import TOLERANCE, State, alone, assert_equal, build_relation, episode_batch, on_ranks
from standing_ranks import StandingRanks
from torch import distributed as dist

from parashot.parallel.context import Context
from parashot.parsing import Value


def stepped(
    context: Context, name: str, parts: int, training: bool = False, norm_episodes: int = 1
) -> tuple[State, torch.Tensor]:
    """State after a step of 7 episodes, and the step's sums over all ranks."""
    settings: dict[str, Value] = {
        "train.batchsz": 7,
        "train.accumulate": parts,
        "model.norm_episodes": norm_episodes,
    }
    strategy = build_relation(context, name, settings, training=training)
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


def test_in_training_mode_batch_norm_takes_the_same_groups_of_episodes() -> None:
    (whole, once), (state, thrice) = (stepped(alone(), "serial", parts, training=True) for parts in (1, 3))
    torch.testing.assert_close(thrice, once, rtol=0, atol=TOLERANCE)
    moved = ("running_mean", "running_var", "num_batches_tracked")  # once for each part
    assert_equal(*({k: v for k, v in each.items() if not k.endswith(moved)} for each in (state, whole)))


def test_without_groups_it_takes_a_part_at_a_time() -> None:
    (_, once), (_, thrice) = (
        stepped(alone(), "serial", parts, training=True, norm_episodes=0) for parts in (1, 3)
    )
    assert abs(thrice[0] - once[0]) > 1e-3
