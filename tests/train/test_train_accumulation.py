"""A step in training mode computed in k parts, one after another; test_strategies.py has eval mode."""

from __future__ import annotations

import torch
from small_tasks import TOLERANCE, State, alone, assert_equal, build_relation, episode_batch


def stepped(parts: int, norm_episodes: int) -> tuple[State, torch.Tensor]:
    """What a step of 7 episodes leaves but for running statistics, and the step's sums."""
    settings = {"train.batchsz": 7, "train.accumulate": parts, "model.norm_episodes": norm_episodes}
    strategy = build_relation(alone(), "serial", settings, training=True)
    sums = strategy.step(episode_batch(strategy, 7))
    moved = ("running_mean", "running_var", "num_batches_tracked")  # once for each part
    return {name: each for name, each in strategy.state_dict().items() if not name.endswith(moved)}, sums


def test_batch_norm_takes_the_same_groups_of_episodes() -> None:
    (whole, once), (state, thrice) = (stepped(parts, norm_episodes=1) for parts in (1, 3))
    torch.testing.assert_close(thrice, once, rtol=0, atol=TOLERANCE)
    assert_equal(state, whole)


def test_without_groups_it_takes_a_part_at_a_time() -> None:
    (_, once), (_, thrice) = (stepped(parts, norm_episodes=0) for parts in (1, 3))
    assert abs(thrice[0] - once[0]) > 1e-3
