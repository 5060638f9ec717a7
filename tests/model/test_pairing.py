"""Both pairings are the same function, of the same weights, with the same gradients."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from parashot.model.pairing import ConcatPairs, SplitPairs, choose_pairing

SIZES = st.integers(1, 5)


@settings(max_examples=40, deadline=None)
@given(
    shape=st.tuples(*[st.integers(1, 3)] * 3, SIZES, SIZES, SIZES),
    kernel=st.sampled_from((1, 3)),
    stride=st.integers(1, 2),
    bias=st.booleans(),
    channels_last=st.booleans(),
)
def test_every_pair_is_convolved(
    shape: tuple[int, ...], kernel: int, stride: int, bias: bool, channels_last: bool
) -> None:
    b, n, q, channels, height, width = shape
    generator = torch.Generator().manual_seed(0)
    conv = nn.Conv2d(2 * channels, 4, kernel, stride, padding=kernel // 2, bias=bias).double()
    support = torch.randn(b, n, channels, height, width, dtype=torch.float64, generator=generator)
    query = torch.randn(b, q, channels, height, width, dtype=torch.float64, generator=generator)
    if channels_last:
        support, query = _channels_last(support), _channels_last(query)
    pairs = [torch.cat((support[i, c], query[i, j])) for i in range(b) for j in range(q) for c in range(n)]
    expected = torch.cat([conv(pair.unsqueeze(0)) for pair in pairs])
    for kind in (ConcatPairs, SplitPairs):
        torch.testing.assert_close(kind(support, query).convolve(conv), expected, rtol=0, atol=1e-12)


def test_gradients_of_both_pairings_are_equal() -> None:
    gradients = []
    for kind in (ConcatPairs, SplitPairs):
        generator = torch.Generator().manual_seed(0)
        support = torch.randn(2, 3, 4, 5, 5, dtype=torch.float64, generator=generator, requires_grad=True)
        query = torch.randn(2, 6, 4, 5, 5, dtype=torch.float64, generator=generator, requires_grad=True)
        conv = nn.Conv2d(8, 2, 3, stride=2, padding=1).double()
        with torch.no_grad():
            for parameter in conv.parameters():
                parameter.normal_(generator=generator)
        kind(support, query).convolve(conv).square().sum().backward()
        gradients.append((support.grad, query.grad, conv.weight.grad, conv.bias.grad))
    for concat, split in zip(*gradients, strict=True):
        torch.testing.assert_close(concat, split, rtol=0, atol=1e-10)


def test_channels_last_maps_give_channels_last_pairs() -> None:
    support, query = _channels_last(torch.rand(2, 5, 8, 4, 4)), _channels_last(torch.rand(2, 10, 8, 4, 4))
    for kind in (ConcatPairs, SplitPairs):
        convolved = kind(support, query).convolve(nn.Conv2d(16, 8, 3, padding=1))
        assert convolved.is_contiguous(memory_format=torch.channels_last)
        assert not convolved.is_contiguous()


def test_split_makes_nothing_of_the_size_of_the_pairs() -> None:
    sizes: list[int] = []
    pairs = SplitPairs(torch.rand(1, 5, 32, 6, 6), torch.rand(1, 10, 32, 6, 6))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
        pairs.convolve(nn.Conv2d(64, 4, 3, padding=1))
    assert sizes
    assert max(sizes) < 50 * 64 * 6 * 6


@pytest.mark.parametrize(
    ("n_way", "queries", "pairing"),
    [(2, 2, "concat"), (2, 4, "split"), (3, 3, "split"), (5, 5, "split"), (5, 75, "split")],
)
def test_auto_splits_where_pairs_outnumber_maps(n_way: int, queries: int, pairing: str) -> None:
    assert choose_pairing(n_way, queries) == pairing


def _channels_last(maps: Tensor) -> Tensor:
    return maps.movedim(2, 4).contiguous().movedim(4, 2)
