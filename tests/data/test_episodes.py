"""Episode i is a pure function of (seed, split, i): the same today and tomorrow."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from parashot.data.episodes import SPLITS, draw_rows
from parashot.params import EpisodeSpec

SIZES = np.array([600] * 64)

GOLDEN = [
    [[25398, 25782], [38162, 38006], [26125, 26367], [3649, 3995], [29542, 29783]],
    [[20069, 20390], [335, 597], [15092, 15224], [22887, 23240], [4408, 4686]],
    [[7504, 7266], [12335, 12113], [38131, 37906], [29818, 29424], [18711, 19097]],
]
GOLDEN_VAL = [[[8657, 8830, 8893], [3229, 3330, 3327]]]


def test_golden_values() -> None:
    """Drawn once and never to change: a restart or another version must see the same episodes."""
    rows = draw_rows(0, "train", np.array([0, 1, 10**12]), SIZES, EpisodeSpec(5, 1, 1))
    assert rows.tolist() == GOLDEN
    assert draw_rows(1, "val", np.array([3]), SIZES[:16], EpisodeSpec(2, 2, 1)).tolist() == GOLDEN_VAL


@given(seed=st.integers(0, 2**31 - 1), first=st.integers(0, 2**40), data=st.data())
def test_classes_and_images_are_distinct_and_in_range(seed: int, first: int, data: st.DataObject) -> None:
    """An episode hangs on its index alone, and its first images not on how many follow."""
    sizes = data.draw(st.lists(st.integers(4, 40), min_size=3, max_size=12))
    n_way, k_shot, k_query = (data.draw(st.integers(low, low + 1)) for low in (2, 1, 1))
    spec, class_sizes = EpisodeSpec(n_way, k_shot, k_query), np.array(sizes)
    rows = draw_rows(seed, "train", np.arange(first, first + 5), class_sizes, spec)
    owner = np.repeat(np.arange(len(sizes)), sizes)[rows]
    assert rows.shape == (5, n_way, k_shot + k_query)
    assert (owner == owner[..., :1]).all()  # a row of one class
    assert all(len(set(each)) == n_way for each in owner[..., 0].tolist())
    assert all(len(set(each)) == len(each) for each in rows.reshape(5, -1).tolist())
    few = draw_rows(seed, "train", np.array([first + 3]), class_sizes, EpisodeSpec(n_way, 1, 1))
    np.testing.assert_array_equal(few[0], rows[3, :, :2])


def test_every_class_and_image_is_equally_likely() -> None:
    """Chi-square over 20,000 episodes against uniform, at a bound of six standard deviations."""
    sizes = np.full(16, 30)
    rows = draw_rows(5, "train", np.arange(20_000), sizes, EpisodeSpec(5, 1, 2))
    for values, cells in ((rows[:, :, 0] // 30, 16), (rows % 30, 30)):
        counts = np.bincount(values.reshape(-1), minlength=cells)
        chi_square = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
        assert chi_square < cells - 1 + 6 * np.sqrt(2 * (cells - 1))


def test_seeds_splits_and_indices_give_different_episodes() -> None:
    indices, spec = np.arange(200), EpisodeSpec(5, 1, 1)
    drawn = [draw_rows(seed, split, indices, SIZES, spec) for seed in (0, 1) for split in SPLITS]
    assert len({each.tobytes() for rows in drawn for each in rows}) == 6 * 200
