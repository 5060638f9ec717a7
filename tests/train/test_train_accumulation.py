"""A step computed in k parts, one after another, against the same step at once."""

from __future__ import annotations

import torch
from small_tasks import TOLERANCE, State, alone, assert_equal, build_relation, episode_batch

from parashot.parsing import Value


def stepped(parts: int, training: bool = False, norm_episodes: int = 1) -> tuple[State, torch.Tensor]:
    """State after a step of 7 episodes, and the step's sums."""
    settings: dict[str, Value] = {
        "train.batchsz": 7,
        "train.accumulate": parts,
        "model.norm_episodes": norm_episodes,
    }
    strategy = build_relation(alone(), "serial", settings, training=training)
    sums = strategy.step(episode_batch(strategy, 7))
    return strategy.state_dict(), sums


def test_k_parts_equal_one_step_where_batch_norm_has_fixed_statistics() -> None:
    """Of one process; test_strategies.py has the others."""
    (whole, once), (state, thrice) = (stepped(parts) for parts in (1, 3))
    assert_equal(state, whole)
    torch.testing.assert_close(thrice, once, rtol=0, atol=TOLERANCE)


def test_in_training_mode_batch_norm_takes_the_same_groups_of_episodes() -> None:
    (whole, once), (state, thrice) = (stepped(parts, training=True) for parts in (1, 3))
    torch.testing.assert_close(thrice, once, rtol=0, atol=TOLERANCE)
    moved = ("running_mean", "running_var", "num_batches_tracked")  # once for each part
    assert_equal(*({k: v for k, v in each.items() if not k.endswith(moved)} for each in (state, whole)))


def test_without_groups_it_takes_a_part_at_a_time() -> None:
    (_, once), (_, thrice) = (stepped(parts, training=True, norm_episodes=0) for parts in (1, 3))
    assert abs(thrice[0] - once[0]) > 1e-3
