"""Embeddings: sizes, and the layers of the papers they come from."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from parashot.model.embeddings import EMBEDDINGS, ResidualBlock, conv4


@pytest.mark.parametrize(
    ("name", "channels", "sizes"),
    [
        ("conv4", 64, {16: 4, 33: 8, 84: 21}),
        ("bottleneck", 1024, {16: 1, 32: 2, 84: 6}),
        ("resnet12", 512, {16: 1, 32: 2, 84: 5}),
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
    images = 1000 * torch.randn(2, 3, 32, 32)
    maps = stem(images)
    assert maps.min() > 0
    assert maps.max() <= 1
    torch.testing.assert_close(maps, F.max_pool2d(stem[1](stem[0](images)).sigmoid(), 3, 2, 1))


def test_residual_block_adds_the_shortcut_before_activation_and_pool() -> None:
    block, maps = ResidualBlock(3, 8), torch.rand(4, 3, 10, 10)
    total = block.residual(maps) + block.shortcut(maps)
    torch.testing.assert_close(block(maps), F.max_pool2d(F.leaky_relu(total, 0.1), 2))
