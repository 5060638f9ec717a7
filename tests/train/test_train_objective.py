"""What is minimised, and how the learning rate falls."""

from __future__ import annotations

import pytest
import torch
from tiny_data import tiny_params
from torch import nn

from parashot.model.losses import LOSSES
from parashot.train.objective import build_objective, learning_rates, optimizer_maker


def test_the_cosine_falls_from_the_full_rate_towards_zero() -> None:
    rate = learning_rates(tiny_params({"train.learning_rate": 0.8, "train.schedule": "cosine"}), 4)
    half = 0.5**0.5
    assert [rate(step) for step in range(4)] == pytest.approx([0.8, 0.4 * (1 + half), 0.4, 0.4 * (1 - half)])


def test_the_constant_rate_stays() -> None:
    rate = learning_rates(tiny_params({"train.learning_rate": 0.8, "train.schedule": "constant"}), 4)
    assert {rate(step) for step in range(4)} == {0.8}


@pytest.mark.parametrize("name", LOSSES)
def test_the_loss_is_the_one_that_is_named(name: str) -> None:
    objective = build_objective(tiny_params({"train.loss": name}))
    scores = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0))
    assert torch.equal(objective.loss(scores), LOSSES[name](scores))
    assert objective.image_size == 16


def test_adam_starts_at_the_rate_of_params() -> None:
    optimizer = optimizer_maker(tiny_params({"train.learning_rate": 0.25}))(nn.Linear(2, 2).parameters())
    assert isinstance(optimizer, torch.optim.Adam)
    assert [group["lr"] for group in optimizer.param_groups] == [0.25]
