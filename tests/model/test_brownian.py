"""The head over Brownian distance covariances: by its definition, in other words."""

from __future__ import annotations

import itertools

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
        within = distances(maps)
    assert scores.dtype == torch.float32
    assert torch.equal(within, distances(maps.float()))


@pytest.fixture
def head() -> BrownianHead:
    head = BrownianHead(5).double()
    for seed, centre in enumerate(head.buffers()):
        centre.uniform_(-0.1, 0.1, generator=torch.Generator().manual_seed(seed))
    return head


def matrix(each: Tensor, centre: Tensor) -> Tensor:
    """Unit vector [C²] of a map [C, h, w], less a centre."""
    return F.normalize(by_definition(each).flatten() - centre, dim=0)


def described(each: Tensor, head: BrownianHead) -> Tensor:
    """What the head compares of a map [5, 8, 8], in other words."""
    whole = matrix(each, head.joint_centre)
    if head.training:
        return whole
    corners = (each[:, :5, :5], each[:, :5, 3:], each[:, 3:, :5], each[:, 3:, 3:])
    windows = sum((matrix(corner, head.window_centre) for corner in corners), torch.zeros(25))
    thirds = (slice(0, 3), slice(2, 6), slice(5, 8))
    fields = [each[:, rows, columns].mean((1, 2)) - head.centre for rows in thirds for columns in thirds]
    parts = [whole, windows, torch.stack(fields, 1).flatten()]
    return torch.cat([part / part.norm() for part in parts])


@pytest.mark.parametrize("training", [True, False])
def test_scores_are_scaled_cosines_and_a_class_is_the_mean_of_its_images(
    head: BrownianHead, training: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    support = torch.randn(2, 3, 4, 5, 8, 8, generator=generator, dtype=torch.float64)
    query = torch.randn(2, 6, 5, 8, 8, generator=generator, dtype=torch.float64)
    head.train(training)
    expected = [  # first, for in training the centres move
        F.cosine_similarity(
            described(query[b, q], head),
            torch.stack([described(each, head) for each in support[b, n]]).mean(0),
            dim=0,
        )
        for b, q, n in itertools.product(range(2), range(6), range(3))
    ]
    scores, temperature = head(support, query), head.log_temperature.exp()
    assert temperature.item() == pytest.approx(10)
    torch.testing.assert_close(scores, temperature * torch.stack(expected).view(2, 6, 3), rtol=0, atol=1e-10)


def test_maps_of_one_place_are_compared(head: BrownianHead) -> None:
    maps = torch.randn(1, 4, 5, 1, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scores = head.eval()(maps[:, :, None], maps)
    torch.testing.assert_close(scores.diagonal(dim1=1, dim2=2), torch.full((1, 4), 10.0, dtype=torch.float64))
