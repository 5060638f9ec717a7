"""Embeddings, initialisers and losses: sizes, layers and numbers of the papers they come from."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from parashot.model.embeddings import EMBEDDINGS, ResidualBlock, conv4
from parashot.model.losses import LOSSES, accuracy, class_of_queries, cross_entropy, mse
from parashot.model.network import INITIALISERS, initialise


@pytest.mark.parametrize(
    ("name", "channels", "sizes"),
    [
        ("conv4", 64, {16: 4, 33: 8, 84: 21}),
        ("bottleneck", 1024, {16: 1, 84: 6}),
        ("resnet12", 512, {16: 1, 84: 5}),
        ("resnet12_wide", 640, {16: 1, 84: 5}),
    ],
)
def test_maps_have_the_channels_they_tell_and_keep_the_memory_format(
    name: str, channels: int, sizes: dict[int, int]
) -> None:
    embedding = EMBEDDINGS[name]().eval()
    assert embedding.channels == channels
    for size, map_size in sizes.items():
        images = torch.rand(2, size, size, 3).permute(0, 3, 1, 2)
        with torch.no_grad():
            maps = embedding(images)
        assert maps.shape == (2, channels, map_size, map_size)
        assert maps.is_contiguous(memory_format=torch.channels_last)
        assert map_size == 1 or not maps.is_contiguous()


def test_conv4_is_the_papers_in_its_order() -> None:
    embedding, images = conv4(), torch.rand(4, 3, 20, 20)
    weights = [weight for weight in embedding.state_dict().values() if weight.dim() == 4]
    maps = images
    for layer, weight in enumerate(weights):
        maps = F.batch_norm(F.conv2d(maps, weight, padding=1), None, None, training=True).relu()
        maps = F.max_pool2d(maps, 2) if layer < 2 else maps
    torch.testing.assert_close(embedding(images), maps)


def test_first_activation_of_the_study_is_a_sigmoid() -> None:
    stem = EMBEDDINGS["bottleneck"]()[0]
    assert isinstance(stem, nn.Sequential)
    images = 1000 * torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(stem(images), F.max_pool2d(stem[1](stem[0](images)).sigmoid(), 3, 2, 1))


def test_residual_block_adds_the_shortcut_before_activation_and_pool() -> None:
    block, maps = ResidualBlock(3, 8), torch.rand(4, 3, 10, 10)
    total = block.residual(maps) + block.shortcut(maps)
    torch.testing.assert_close(block(maps), F.max_pool2d(F.leaky_relu(total, 0.1), 2))


SPREADS = {
    "kaiming": (math.sqrt(2 / (32 * 9)), math.sqrt(2 / 300)),
    "xavier": (math.sqrt(2 / (96 * 9)), math.sqrt(2 / 500)),
}


@pytest.mark.parametrize("name", INITIALISERS)
def test_numbers_are_spread_as_promised_and_come_from_the_generator_alone(name: str) -> None:
    conv, norm, linear = nn.Conv2d(32, 64, 3), nn.BatchNorm2d(64), nn.Linear(300, 200)
    network, before = nn.Sequential(conv, norm, linear), torch.get_rng_state()
    states = []
    for seed in (1, 0, 0):
        for value in (*network.parameters(), norm.get_buffer("running_mean")):
            nn.init.constant_(value, 5.0)
        initialise(network, name, torch.Generator().manual_seed(seed))
        states.append(conv.weight.detach().clone())
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(states[1], states[2]) and not torch.equal(states[0], states[1])
    conv_std, linear_std = SPREADS[name]
    assert conv.weight.std().item() == pytest.approx(conv_std, rel=0.03)
    assert linear.weight.std().item() == pytest.approx(linear_std, rel=0.03)
    assert norm.weight.eq(1).all()
    zeros = (*(network.get_parameter(f"{layer}.bias") for layer in range(3)), norm.get_buffer("running_mean"))
    assert not any(value.any() for value in zeros)


GROUPED = torch.tensor([0, 0, 1, 1, 2, 2])
SCORES = torch.randn(4, 6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_losses_are_those_of_the_class_that_queries_are_grouped_by() -> None:
    assert torch.equal(class_of_queries(SCORES), GROUPED)
    error = (1 / (1 + torch.exp(-SCORES)) - F.one_hot(GROUPED, 3)) ** 2
    torch.testing.assert_close(mse(SCORES), error.mean((1, 2)))
    expected = torch.stack([F.cross_entropy(episode, GROUPED) for episode in SCORES])
    torch.testing.assert_close(cross_entropy(SCORES), expected)


@pytest.mark.parametrize("name", LOSSES)
def test_scores_of_less_than_32_bits_are_computed_with_32(name: str) -> None:
    loss = LOSSES[name]
    assert loss(SCORES).dtype == torch.float64
    for dtype in (torch.float16, torch.bfloat16):
        low = SCORES.to(dtype)
        assert loss(low).dtype == torch.float32
        assert torch.equal(loss(low), loss(low.float()))


def test_accuracy_counts_queries_whose_class_scores_best() -> None:
    right = F.one_hot(GROUPED, 3).float()
    wrong = right.roll(1, dims=1)
    half = torch.cat((right[:3], wrong[3:]))
    assert accuracy(torch.stack((right, wrong, half))).tolist() == [1.0, 0.0, 0.5]
    assert not accuracy(SCORES.clone().requires_grad_()).requires_grad
