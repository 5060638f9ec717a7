"""Ghost batch norm: groups of a batch are normalised as if each were a batch of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_data import tiny_params
from torch import nn

from parashot.model.network import build_network
from parashot.model.norm import BatchNorm1d, BatchNorm2d
from parashot.params import ModelParams

EXACT = {"rtol": 0.0, "atol": 1e-12}


@given(full=st.integers(1, 4), last=st.integers(1, 4))
def test_each_group_is_a_batch_of_its_own(full: int, last: int) -> None:
    """All groups are of 4 maps but for the last, which has what is left."""
    count = 4 * full + last
    maps = torch.randn(count, 3, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(count))
    norm = BatchNorm2d(3).double()
    norm.group = 4
    alone = [nn.BatchNorm2d(3, momentum=1.0).double() for _ in maps.split(4)]
    expected = torch.cat([each(part) for each, part in zip(alone, maps.split(4), strict=True)])
    torch.testing.assert_close(norm(maps), expected, **EXACT)
    shares = torch.tensor([len(part) / count for part in maps.split(4)], dtype=torch.float64)
    mean, variance = (
        (shares[:, None] * torch.stack([getattr(each, name) for each in alone])).sum(0)
        for name in ("running_mean", "running_var")
    )
    torch.testing.assert_close(norm.running_mean, 0.1 * mean, **EXACT)
    torch.testing.assert_close(norm.running_var, 0.9 + 0.1 * variance, **EXACT)
    assert norm.num_batches_tracked == 1


@pytest.mark.parametrize("group", [0, 6, 7])
def test_without_groups_it_is_that_of_pytorch(group: int) -> None:
    rows = torch.randn(6, 3)
    ours, theirs = BatchNorm1d(3), nn.BatchNorm1d(3)
    ours.group = group
    assert torch.equal(ours(rows), theirs(rows))
    assert all(torch.equal(value, theirs.state_dict()[name]) for name, value in ours.state_dict().items())


def test_running_statistics_stay_in_full_precision() -> None:
    norm = BatchNorm2d(3)
    norm.group = 2
    with torch.autocast("cpu", torch.bfloat16):
        norm(torch.randn(6, 3, 4, 4).bfloat16()).sum().backward()
    plain = BatchNorm2d(3)
    assert {key: each.dtype for key, each in norm.state_dict().items()} == {
        key: each.dtype for key, each in plain.state_dict().items()
    }
    assert not torch.equal(norm.running_var, plain.running_var)


def test_in_eval_mode_groups_change_nothing() -> None:
    maps, norm = torch.randn(6, 3, 2, 2), BatchNorm2d(3).eval()
    whole = norm(maps)
    norm.group = 2
    assert torch.equal(norm(maps), whole)


def test_maps_stay_in_channels_last() -> None:
    maps, norm = torch.randn(6, 3, 2, 2).to(memory_format=torch.channels_last), BatchNorm2d(3)
    norm.group = 2
    assert norm(maps).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("head", ["relation", "residual"])
@pytest.mark.parametrize("embedding", ["conv4", "conv4_pooled", "bottleneck", "resnet12"])
def test_what_is_trained_of_a_group_of_episodes_does_not_depend_on_the_others(
    embedding: str, head: str
) -> None:
    """Scores and gradients of 4 episodes are those of 2 and 2."""
    model: ModelParams = replace(tiny_params().model, embedding=embedding, head=head)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(0)
    support = torch.randn(4, 2, 1, 3, 16, 16, dtype=torch.float64, generator=generator)
    query = torch.randn(4, 4, 3, 16, 16, dtype=torch.float64, generator=generator)
    networks = [build_network(model, 0).double() for _ in range(2)]
    for network in networks:
        network.norm_by_episodes(2, n=2, k=1, q=4)
    whole = networks[0](support, query)
    parts = torch.cat([networks[1](support[at], query[at]) for at in (slice(2), slice(2, 4))])
    torch.testing.assert_close(whole[:2], parts[:2], **EXACT)
    if head == "relation":  # a residual head's centre has moved between the parts
        torch.testing.assert_close(whole, parts, **EXACT)
        whole.square().sum().backward()
        parts.square().sum().backward()
        for ours, theirs in zip(networks[0].parameters(), networks[1].parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-10, atol=1e-10)
