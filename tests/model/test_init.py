"""Initialisers: the statistics their papers promise."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from parashot.model.init import INITIALISERS, initialise


def filled(name: str, seed: int = 0) -> nn.Sequential:
    network = nn.Sequential(
        nn.Conv2d(32, 64, 3), nn.BatchNorm2d(64), nn.Linear(300, 200), nn.BatchNorm1d(200)
    )
    for parameter in network.parameters():
        nn.init.constant_(parameter, 5.0)
    network[1].running_mean.fill_(3.0)
    initialise(network, name, torch.Generator().manual_seed(seed))
    return network


@pytest.mark.parametrize(
    ("name", "conv_std", "linear_std"),
    [
        ("kaiming", math.sqrt(2 / (32 * 9)), math.sqrt(2 / 300)),
        ("xavier", math.sqrt(2 / (96 * 9)), math.sqrt(2 / 500)),
        ("normal", 0.02, 0.02),
        ("orthogonal", math.sqrt(1 / (32 * 9)), math.sqrt(1 / 300)),
    ],
)
def test_spread(name: str, conv_std: float, linear_std: float) -> None:
    conv, _, linear, _ = filled(name)
    assert conv.weight.std().item() == pytest.approx(conv_std, rel=0.03)
    assert linear.weight.std().item() == pytest.approx(linear_std, rel=0.03)
    assert abs(linear.weight.mean().item()) < linear_std / 50
    if name == "orthogonal":
        torch.testing.assert_close(linear.weight @ linear.weight.T, torch.eye(200), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", INITIALISERS)
def test_numbers_come_from_the_generator_alone_and_norms_are_the_identity(name: str) -> None:
    network, again, other = filled(name), filled(name), filled(name, seed=1)
    before = torch.get_rng_state()
    initialise(network, name, torch.Generator().manual_seed(0))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(network[0].weight, again[0].weight)
    assert not torch.equal(network[0].weight, other[0].weight)
    assert not network[0].bias.any() and not network[2].bias.any()
    for norm in (network[1], network[3]):
        assert norm.weight.eq(1).all()
        assert not norm.bias.any() and not norm.running_mean.any()
