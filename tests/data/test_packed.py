"""Packed data: real JPEGs through the raw store into arrays, whole or not at all."""

from __future__ import annotations

import json
import pickle
import warnings
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from PIL import Image

from parashot.data.episodes import EpisodeSpec, draw_rows
from parashot.data.images import decode, encode_jpeg
from parashot.data.manifest import (
    VERSION,
    PackManifest,
    SplitManifest,
    read_manifest,
    verify,
    write_manifest,
)
from parashot.data.pack import pack
from parashot.data.packed import PackedSplit
from parashot.data.raw import ImageStream, RawImage, write_raw
from parashot.errors import DataError

SPEC = EpisodeSpec(2, 1, 2)
CLASSES = {"train": ["a", "b", "c"], "val": ["d", "e"], "test": ["f", "g"]}


def picture(label: str, number: int, size: tuple[int, int] = (20, 20)) -> bytes:
    rng = np.random.default_rng((ord(label), number))
    return encode_jpeg(rng.integers(0, 256, (*size, 3), dtype=np.uint8))


def make_raw(
    folder: Path, sizes: dict[str, tuple[int, int]] | None = None
) -> dict[str, dict[str, list[str]]]:
    labels = [label for each in CLASSES.values() for label in each]
    images = [
        RawImage(label, f"{number}.jpg", picture(label, number, (sizes or {}).get(label, (20, 20))))
        for label in labels
        for number in range(4)
    ]
    write_raw(folder, ImageStream(images), "folder", "fail", lambda line: None)
    return {
        split: {label: [f"{label}/{number}.jpg" for number in range(4)] for label in each}
        for split, each in CLASSES.items()
    }


def make_packed(folder: Path, sizes: dict[str, tuple[int, int]] | None = None) -> Path:
    split = make_raw(folder / "raw", sizes)
    pack(
        folder / "raw",
        split,
        folder / "packed",
        pack_size=16,
        seed=3,
        spec=SPEC,
        episodes={"val": 7, "test": 9},
        progress=lambda line: None,
    )
    return folder / "packed"


def test_a_split_may_be_larger_than_the_memory(tmp_path: Path) -> None:
    side = 512
    images = 4 * psutil.virtual_memory().total // (3 * side * side)
    header = {"descr": "|u1", "fortran_order": False, "shape": (images, side, side, 3)}
    with (tmp_path / "train.images.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + images * 3 * side * side)  # a hole: it takes no room
    there = SplitManifest(("a",), images, side, side, episodes=0)
    write_manifest(tmp_path, PackManifest(VERSION, "folder", "as found", 0, None, {"train": there}, {}))
    split = PackedSplit(tmp_path, "train")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chosen = split.pixels.index_select(0, torch.tensor([0, images - 1]))
    assert chosen.shape == (2, side, side, 3)
    assert not chosen.any()


def test_pixels_bytes_and_episodes_are_those_of_the_images(tmp_path: Path) -> None:
    folder = make_packed(tmp_path)
    split = PackedSplit(folder, "val")
    assert split.images.shape == (8, 20, 20, 3)
    for row, (label, number) in enumerate((label, number) for label in "de" for number in range(4)):
        assert split.encoded(row) == picture(label, number)
        np.testing.assert_array_equal(split.images[row], decode(picture(label, number)))
    np.testing.assert_array_equal(split.episodes, draw_rows(3, "val", np.arange(7), np.array([4, 4]), SPEC))
    manifest = read_manifest(folder)
    assert manifest.resized_to is None
    assert manifest.splits["train"].classes == ("a", "b", "c")
    assert (manifest.splits["test"].images, manifest.splits["test"].episodes) == (8, 9)
    verify(folder)


def test_images_of_several_sizes_become_squares(tmp_path: Path) -> None:
    folder = make_packed(tmp_path, {"g": (30, 40)})
    assert read_manifest(folder).resized_to == 16
    assert PackedSplit(folder, "train").images.shape == (12, 16, 16, 3)


def test_a_split_travels_without_its_arrays(tmp_path: Path) -> None:
    split = PackedSplit(make_packed(tmp_path), "train")
    assert split.images.sum() > 0
    assert len(pickle.dumps(split)) < 1000
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(split)).images, split.images)


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    folder = make_packed(tmp_path)
    path = folder / "train.images.npy"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"train\.images\.npy: damaged"):
        verify(folder)


def test_another_format_version_is_refused(tmp_path: Path) -> None:
    folder = make_packed(tmp_path)
    tree = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**tree, "version": 99}))
    with pytest.raises(DataError, match="format 99"):
        read_manifest(folder)


def test_a_missing_member_leaves_nothing_behind(tmp_path: Path) -> None:
    split = make_raw(tmp_path / "raw")
    split["train"]["a"].append("a/9.jpg")
    with pytest.raises(DataError, match=r"a/9\.jpg: in the split, but not in"):
        pack(
            tmp_path / "raw",
            split,
            tmp_path / "packed",
            pack_size=16,
            seed=0,
            spec=SPEC,
            episodes={},
            progress=lambda line: None,
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["raw"]


def test_an_array_that_is_none_is_refused(tmp_path: Path) -> None:
    folder = make_packed(tmp_path)
    (folder / "val.images.npy").write_bytes(b"not an array")
    with pytest.raises(DataError, match=r"val\.images\.npy: not a packed array"):
        _ = PackedSplit(folder, "val").images


def test_mode_of_images_is_no_matter(tmp_path: Path) -> None:
    grey = Image.new("L", (20, 20), 77)
    path = tmp_path / "grey.png"
    grey.save(path)
    assert decode(path.read_bytes()).shape == (20, 20, 3)
