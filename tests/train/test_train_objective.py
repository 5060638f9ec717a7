"""What is minimised, and how the learning rate falls."""

from __future__ import annotations

import pytest
import torch
from parashot.train.objective import build_objective, learning_rates, optimizer_maker
from tiny_data import tiny_params
from torch import nn

from parashot.data.augment import Augmentation
from parashot.model.losses import LOSSES
from parashot.model.network import build_network


def test_the_cosine_falls_from_the_full_rate_towards_zero() -> None:
    rate = learning_rates(tiny_params({"train.learning_rate": 0.8, "train.schedule": "cosine"}), 4, 3)
    half = 0.5**0.5
    assert [rate(step) for step in range(4)] == pytest.approx([0.8, 0.4 * (1 + half), 0.4, 0.4 * (1 - half)])


def test_the_constant_rate_stays() -> None:
    rate = learning_rates(tiny_params({"train.learning_rate": 0.8, "train.schedule": "constant"}), 4, 3)
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
    optimizer = optimizer_maker(tiny_params({"train.learning_rate": 0.25}))(nn.Linear(2, 2))
    assert isinstance(optimizer, torch.optim.Adam)
    assert [group["lr"] for group in optimizer.param_groups] == [0.25]


def test_the_head_has_a_rate_of_its_own() -> None:
    params = tiny_params({"train.lr_relation": 0.5})
    network = build_network(params.model, 0)
    others, head = optimizer_maker(params)(network).param_groups
    assert (others["scale"], head["scale"]) == (1.0, 0.5)
    names = {id(value): name for name, value in network.named_parameters()}
    assert {names[id(value)].split(".")[0] for value in others["params"]} == {"embedding"}
    assert {names[id(value)].split(".")[0] for value in head["params"]} == {"relation"}
    assert len(others["params"]) + len(head["params"]) == len(names)


@pytest.mark.parametrize(("scaling", "factor"), [("none", 1.0), ("linear", 4.0), ("sqrt", 2.0)])
def test_the_rate_grows_with_the_batch_as_told(scaling: str, factor: float) -> None:
    settings = {"train.learning_rate": 0.1, "train.lr_scaling": scaling, "train.lr_batchsz": 8}
    rate = learning_rates(tiny_params({**settings, "train.schedule": "constant"}), 5, 32)
    assert rate(0) == rate(4) == pytest.approx(0.1 * factor)


def test_the_rate_warms_up_in_equal_parts_and_then_follows_its_schedule() -> None:
    settings = {"train.learning_rate": 0.8, "train.warmup_steps": 3}
    constant = learning_rates(tiny_params({**settings, "train.schedule": "constant"}), 6, 8)
    assert [constant(step) for step in range(6)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8, 0.8])
    cosine = learning_rates(tiny_params({**settings, "train.schedule": "cosine"}), 6, 8)
    plain = learning_rates(tiny_params({"train.learning_rate": 0.8, "train.schedule": "cosine"}), 6, 8)
    assert [cosine(step) for step in range(3, 6)] == [plain(step) for step in range(3, 6)]
    assert cosine(0) == pytest.approx(plain(0) / 4)
