"""Both pairings are the same function, of the same weights; gradients are in test_network.py."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from parashot.model.pairing import ConcatPairs, SplitPairs, choose_pairing

SIZES = st.integers(1, 5)


@settings(max_examples=40)
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
        support, query = (each.movedim(2, 4).contiguous().movedim(4, 2) for each in (support, query))
    pairs = [torch.cat((support[i, c], query[i, j])) for i in range(b) for j in range(q) for c in range(n)]
    expected = torch.cat([conv(pair.unsqueeze(0)) for pair in pairs])
    for kind in (ConcatPairs, SplitPairs):
        torch.testing.assert_close(kind(support, query).convolve(conv), expected, rtol=0, atol=1e-12)


def test_split_makes_nothing_of_the_size_of_the_pairs() -> None:
    sizes: list[int] = []
    pairs = SplitPairs(torch.rand(1, 5, 32, 6, 6), torch.rand(1, 10, 32, 6, 6))

    def saved(tensor: torch.Tensor) -> torch.Tensor:
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(saved, lambda tensor: tensor):
        pairs.convolve(nn.Conv2d(64, 4, 3, padding=1))
    assert sizes
    assert max(sizes) < 50 * 64 * 6 * 6


def test_auto_splits_where_pairs_outnumber_maps() -> None:
    assert choose_pairing(2, 2) == "concat"
    assert choose_pairing(2, 4) == "split"
