"""Packed data: real JPEGs through the raw store into arrays, whole or not at all."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from tiny_data import CLASSES, IMAGES

from parashot.data.episodes import SPLITS
from parashot.data.images import decode, encode_jpeg
from parashot.data.manifest import MANIFEST, PackManifest, SplitManifest, read_manifest, sha256
from parashot.data.pack import pack
from parashot.data.packed import PackedSplit
from parashot.data.raw import ImageStream, RawImage, open_images, write_raw
from parashot.errors import ParashotError
from parashot.records import write_result


def test_pixels_and_bytes_are_those_of_the_images(tiny_packed: Path) -> None:
    split = PackedSplit(tiny_packed, "val")
    assert split.class_sizes.tolist() == [IMAGES] * 3
    assert split.images.shape == (3 * IMAGES, 16, 16, 3)
    names = [f"{label}/{number}.jpg" for label in CLASSES["val"] for number in range(IMAGES)]
    with open_images(tiny_packed.parent / "raw") as read:
        for row, name in enumerate(names):
            assert split.encoded(row) == read(name)
            np.testing.assert_array_equal(split.images[row], decode(read(name)))


def test_the_manifest_identifies_the_contents(tiny_packed: Path) -> None:
    manifest = read_manifest(tiny_packed)
    assert manifest.splits["val"] == SplitManifest(tuple(CLASSES["val"]), 3 * IMAGES, 16, 16)
    files = [path for path in tiny_packed.iterdir() if path.name != MANIFEST]
    assert manifest.sha256 == {path.name: sha256(path) for path in files}


def test_images_of_several_sizes_become_squares(tmp_path: Path) -> None:
    raw, widths = tmp_path / "raw", (20, 21)
    images = [
        RawImage("a", f"{width}.jpg", encode_jpeg(np.zeros((20, width, 3), np.uint8))) for width in widths
    ]
    write_raw(raw, ImageStream(images))
    split: dict[str, Any] = {name: {"a": [f"a/{width}.jpg" for width in widths]} for name in SPLITS}
    pack(raw, split, tmp_path / "packed", pack_size=16)
    assert PackedSplit(tmp_path / "packed", "train").images.shape == (2, 16, 16, 3)


def test_a_split_may_be_larger_than_the_memory(tmp_path: Path) -> None:
    side = 512
    images = 4 * psutil.virtual_memory().total // (3 * side * side)
    header = {"descr": "|u1", "fortran_order": False, "shape": (images, side, side, 3)}
    with (tmp_path / "train.images.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + images * 3 * side * side)  # a hole: it takes no room
    write_result(tmp_path / MANIFEST, PackManifest({"train": SplitManifest(("a",), images, side, side)}, {}))
    split = PackedSplit(tmp_path, "train")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chosen = split.pixels.index_select(0, torch.tensor([0, images - 1]))
    assert chosen.shape == (2, side, side, 3)
    assert not chosen.any()


Harm = Callable[[Path], object]


def _save(array: Any) -> Harm:
    return lambda path: np.save(path, array)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _no_images(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"images": 18', b'"images": 0'))


HARMS: dict[str, tuple[str, Harm, str]] = {
    "cut off": ("val.images.npy", _cut, "cannot be read"),
    "too few": ("val.images.npy", _save(np.zeros((17, 16, 16, 3), np.uint8)), "not uint8 [18, 16, 16, 3]"),
    "sizes": ("val.sizes.npy", _save(np.array([6, 6, 3, 3])), "not int64 [3]"),
    "offsets": ("val.offsets.npy", _save(np.arange(18)), "not int64 [19]"),
    "few bytes": ("val.encoded.bin", _cut, "cannot be read"),
    "no bytes": ("val.encoded.bin", Path.unlink, "cannot be read"),
    "no images": (MANIFEST, _no_images, f"{MANIFEST}: not a PackManifest (splits.test.images"),
    "no manifest": (MANIFEST, Path.unlink, f"{MANIFEST}: cannot be read"),
}


@pytest.mark.parametrize(("file", "harm", "message"), HARMS.values(), ids=HARMS)
def test_harm_is_told_in_one_line(
    tiny_packed: Path, tmp_path: Path, file: str, harm: Harm, message: str
) -> None:
    packed = tmp_path / "packed"
    shutil.copytree(tiny_packed, packed)
    harm(packed / file)
    split = PackedSplit(packed, "val")
    with pytest.raises(ParashotError) as caught:
        _ = split.images, split.class_sizes, split.encoded(0)
    assert all(part in str(caught.value) for part in (f"{packed / file}: ", message, "run `dvc repro"))
