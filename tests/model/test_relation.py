"""Heads: maps of any size give one score per pair."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from parashot.model.pairing import ConcatPairs
from parashot.model.relation import BottleneckHead, ConvHead


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8, 21])
@pytest.mark.parametrize(("head", "channels"), [(ConvHead, 16), (BottleneckHead, 16)])
def test_any_map_size_gives_a_score_per_pair(head: type[nn.Module], channels: int, size: int) -> None:
    pairs = ConcatPairs(torch.rand(2, 3, channels, size, size), torch.rand(2, 6, channels, size, size))
    scores = head(channels)(pairs)
    assert scores.shape == (2 * 6 * 3, 1)
    assert scores.isfinite().all()


def test_conv_head_has_the_papers_layers() -> None:
    head = ConvHead(64)
    shapes = [tuple(parameter.shape) for parameter in head.parameters() if parameter.dim() > 1]
    assert shapes == [(64, 128, 3, 3), (64, 64, 3, 3), (8, 576), (1, 8)]
