"""Ghost batch norm: groups of a batch are normalised as if each were a batch of its own."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from parashot.model.norm import BatchNorm1d, BatchNorm2d

exactly = partial(torch.testing.assert_close, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("count", [5, 8, 11])
def test_each_group_is_a_batch_of_its_own(count: int) -> None:
    """All groups are of 4 maps but for the last, which has what is left."""
    maps = torch.randn(count, 3, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(count))
    norm = BatchNorm2d(3).double()
    norm.group = 4
    alone = [nn.BatchNorm2d(3, momentum=1.0).double() for _ in maps.split(4)]
    expected = torch.cat([each(part) for each, part in zip(alone, maps.split(4), strict=True)])
    exactly(norm(maps), expected)
    shares = torch.tensor([len(part) / count for part in maps.split(4)], dtype=torch.float64)
    mean, variance = (
        (shares[:, None] * torch.stack([getattr(each, name) for each in alone])).sum(0)
        for name in ("running_mean", "running_var")
    )
    exactly(norm.running_mean, 0.1 * mean)
    exactly(norm.running_var, 0.9 + 0.1 * variance)
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
    assert not torch.equal(norm.get_buffer("running_var"), plain.get_buffer("running_var"))


def test_maps_stay_in_channels_last_and_in_eval_mode_groups_change_nothing() -> None:
    maps, norm = torch.randn(6, 3, 2, 2).to(memory_format=torch.channels_last), BatchNorm2d(3)
    whole = norm.eval()(maps)
    norm.group = 2
    assert torch.equal(norm(maps), whole)
    assert norm.train()(maps).is_contiguous(memory_format=torch.channels_last)
