"""Parts of maps are dropped in squares, as the key of their image says, and the rest makes up for them."""

from __future__ import annotations

import pytest
import torch

from parashot.data.dropblock import drop_blocks
from parashot.data.episodes import IMAGE_DROPS, episode_keys

KEYS = episode_keys(0, "train", torch.arange(64), IMAGE_DROPS)


@pytest.mark.parametrize("size", [1, 2, 4, 5, 10, 21])
def test_about_the_share_is_dropped_and_the_mean_stays(size: int) -> None:
    maps = torch.ones(64, 40, size, size)
    dropped = drop_blocks(maps, KEYS, 0.1)
    assert (dropped == 0).float().mean() == pytest.approx(0.1, abs=0.03)
    torch.testing.assert_close(dropped.mean((1, 2, 3)), torch.ones(64))
    assert drop_blocks(maps[:, :1], KEYS, 0.5).isfinite().all()  # also where a map is dropped whole


def test_what_is_dropped_are_whole_squares() -> None:
    zero = drop_blocks(torch.ones(64, 8, 10, 10), KEYS, 0.05) == 0
    squares = zero.unfold(2, 5, 1).unfold(3, 5, 1).all(-1).all(-1)  # [m, C, 6, 6]: a whole one begins here
    covered = torch.nn.functional.max_pool2d(torch.nn.functional.pad(squares.float(), [4] * 4), 5, stride=1)
    assert zero.any()
    assert torch.equal(covered > 0, zero)


def test_it_is_a_function_of_each_image_and_its_key() -> None:
    maps = torch.randn(64, 3, 10, 10, dtype=torch.float64)
    whole = drop_blocks(maps, KEYS, 0.2)
    assert torch.equal(whole[9:], drop_blocks(maps[9:], KEYS[9:], 0.2))
    assert not torch.equal(whole, drop_blocks(maps, KEYS + 1, 0.2))
