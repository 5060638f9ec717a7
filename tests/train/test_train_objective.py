"""What is minimised, and how the learning rate falls."""

from __future__ import annotations

import pytest
import torch
from tiny_data import tiny_params
from torch import nn

from parashot.data.augment import Augmentation
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
    assert objective.inputs.image_size == 16


def test_what_is_still_open_is_full_precision() -> None:
    for precision, half in (("auto", False), ("fp32", False), ("bf16", True)):
        assert build_objective(tiny_params({"train.precision": precision})).inputs.bfloat16 is half


def test_the_recipe_of_augmentation_is_the_one_in_params() -> None:
    settings = {"augment.crop": 0.4, "augment.flip": True, "augment.jitter": 0.2, "seed": 9}
    inputs = build_objective(tiny_params(settings)).inputs
    assert inputs.augmentation == Augmentation(crop=0.4, flip=True, jitter=0.2)
    assert inputs.seed == 9
    assert not build_objective(tiny_params()).inputs.augmentation.active


def test_adam_starts_at_the_rate_of_params() -> None:
    optimizer = optimizer_maker(tiny_params({"train.learning_rate": 0.25}))(nn.Linear(2, 2).parameters())
    assert isinstance(optimizer, torch.optim.Adam)
    assert [group["lr"] for group in optimizer.param_groups] == [0.25]
