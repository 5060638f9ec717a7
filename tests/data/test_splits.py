"""Splits share no class, follow the source or the seed, and refuse what no episode could be drawn from."""

from __future__ import annotations

from pathlib import Path

import pytest
from copies import jpeg
from hypothesis import given
from hypothesis import strategies as st

from parashot.data.raw import ImageStream, RawImage, Splits, write_raw
from parashot.data.splits import read_split, seeded_splits, write_split
from parashot.errors import DataError


def make_raw(folder: Path, counts: dict[str, int], splits: Splits | None = None) -> Path:
    """A raw store of so many images of each class."""
    images = (RawImage(k, f"{i}.jpg", jpeg(i)) for k, n in reversed(counts.items()) for i in range(n))
    write_raw(folder / "raw", ImageStream(images, splits))
    return folder / "raw"


THREE: Splits = {"train": ("c", "a"), "val": ("b", "d"), "test": ("e", "f")}


def test_follows_the_split_of_the_source(tmp_path: Path) -> None:
    odd = 'd, "e"'  # what CSV quotes
    raw = make_raw(tmp_path, dict.fromkeys(["a", "b", "c", odd, "e", "f"], 2), {**THREE, "val": (odd, "b")})
    write_split(raw, tmp_path / "split", 0, n_way=2, images_needed=2)
    assert (tmp_path / "split" / "train.csv").read_text() == (
        "filename,label\na/0.jpg,a\na/1.jpg,a\nc/0.jpg,c\nc/1.jpg,c\n"
    )
    assert read_split(tmp_path / "split")["val"] == {
        "b": ["b/0.jpg", "b/1.jpg"],
        odd: [f"{odd}/0.jpg", f"{odd}/1.jpg"],
    }


def test_makes_its_own_where_there_is_none(tmp_path: Path) -> None:
    raw = make_raw(tmp_path, {f"class{i:02d}": 1 for i in range(25)})
    for name, seed in (("one", 7), ("same", 7), ("other", 8)):
        write_split(raw, tmp_path / name, seed, n_way=2, images_needed=1)
    splits = read_split(tmp_path / "one")
    assert {split: len(classes) for split, classes in splits.items()} == {"train": 16, "val": 4, "test": 5}
    assert splits == read_split(tmp_path / "same")
    assert splits != read_split(tmp_path / "other")


@given(classes=st.integers(1, 120), n_way=st.integers(1, 8), seed=st.integers(0, 9))
def test_seeded_splits_have_room_for_an_episode(classes: int, n_way: int, seed: int) -> None:
    labels = [str(number) for number in range(classes)]
    if classes < 3 * n_way:
        with pytest.raises(DataError, match=rf"^{classes} classes .*: {3 * n_way} are needed"):
            seeded_splits(labels, seed, n_way)
        return
    splits = seeded_splits(labels, seed, n_way)
    assert sorted(label for each in splits.values() for label in each) == sorted(labels)
    assert min(map(len, splits.values())) >= n_way


@pytest.mark.parametrize(
    ("n_way", "needed", "counts", "message"),
    [
        (3, 1, {}, r"split train has 2 classes, episodes need 3"),
        (2, 4, {"d": 3}, r"class d of split val has 3 images, episodes need 4"),
        (2, 1, {"e": 0}, r"class e of split test has 0 images, episodes need 1"),
    ],
)
def test_too_little_for_an_episode(
    tmp_path: Path, n_way: int, needed: int, counts: dict[str, int], message: str
) -> None:
    raw = make_raw(tmp_path, {**dict.fromkeys("abcdef", 5), **counts}, THREE)
    with pytest.raises(DataError, match=message):
        write_split(raw, tmp_path / "split", 0, n_way, needed)
    assert not (tmp_path / "split").exists()
