"""The head over Brownian distance covariances: by its definition, in other words."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from parashot.model.brownian import BrownianHead, distances


def by_definition(maps: Tensor) -> Tensor:
    """Brownian distance matrix [C, C] of one map [C, h, w]: channels are variables, places observations."""
    channels = maps.flatten(1)
    difference = channels[:, None] - channels[None]
    matrix = (difference.square().mean(2) + 1e-5).sqrt()
    centring = torch.eye(len(channels), dtype=maps.dtype) - 1 / len(channels)
    return centring @ matrix @ centring


@given(channels=st.integers(1, 6), side=st.integers(1, 4), seed=st.integers(0, 99))
def test_distances_are_double_centred_matrices(channels: int, side: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    maps = torch.randn(2, 3, channels, side, side, generator=generator, dtype=torch.float64)
    found = distances(maps).unflatten(-1, (channels, channels))
    for each, matrix in zip(maps.flatten(0, 1), found.flatten(0, 1), strict=True):
        # squares of nearly equal channels cancel, and a root makes 1e-16 of them 1e-14 / 3e-3
        torch.testing.assert_close(matrix, by_definition(each), rtol=0, atol=1e-12)


def test_maps_of_equal_channels_have_a_slope() -> None:
    maps = torch.ones(1, 3, 2, 2, dtype=torch.float64, requires_grad=True)
    distances(maps).square().sum().backward()
    assert maps.grad is not None
    assert maps.grad.isfinite().all()
    other = torch.randn(1, 3, 2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.autograd.gradcheck(distances, other.requires_grad_())


def test_half_precision_is_computed_in_full() -> None:
    maps = torch.randn(2, 4, 3, 3, generator=torch.Generator().manual_seed(0)).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        scores = BrownianHead(4)(maps[None, :, None], maps[None])
    assert scores.dtype == torch.float32
    assert torch.equal(distances(maps), distances(maps.float()))


def test_a_class_is_the_mean_of_its_images_and_scores_are_scaled_cosines() -> None:
    generator = torch.Generator().manual_seed(0)
    support = torch.randn(2, 3, 4, 5, 2, 2, generator=generator, dtype=torch.float64)
    query = torch.randn(2, 6, 5, 2, 2, generator=generator, dtype=torch.float64)
    head = BrownianHead(5).double().eval()
    head.joint_centre.uniform_(-0.1, 0.1, generator=generator)
    scores, temperature = head(support, query), head.log_temperature.exp().item()
    assert temperature == pytest.approx(10)
    assert scores.shape == (2, 6, 3)
    for b, q, n in ((0, 0, 0), (1, 5, 2), (1, 2, 0)):
        of_class = sum(by_definition(each) for each in support[b, n]) / 4 - head.joint_centre.view(5, 5)
        of_query = by_definition(query[b, q]) - head.joint_centre.view(5, 5)
        cosine = F.cosine_similarity(of_class.flatten(), of_query.flatten(), dim=0)
        assert scores[b, q, n].item() == pytest.approx(temperature * cosine.item(), abs=1e-10)


def test_centres_follow_the_queries_in_training_alone() -> None:
    head = BrownianHead(3).double()
    query = torch.randn(1, 4, 3, 2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    head(query[:, :2, None], query)
    torch.testing.assert_close(head.centre, 0.01 * query[0].mean((0, 2, 3)))
    torch.testing.assert_close(head.joint_centre, 0.01 * distances(query[0]).mean(0))
    before = {name: each.clone() for name, each in head.named_buffers()}
    head.eval()(query[:, :2, None], query)
    assert all(torch.equal(before[name], each) for name, each in head.named_buffers())
