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
from parashot.errors import DataError
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


def test_images_of_several_sizes_become_squares_and_a_split_without_images_leaves_nothing(
    tmp_path: Path,
) -> None:
    raw, widths = tmp_path / "raw", (20, 21)
    images = [
        RawImage("a", f"{width}.jpg", encode_jpeg(np.zeros((20, width, 3), np.uint8))) for width in widths
    ]
    write_raw(raw, ImageStream(images), "folder", "fail")
    split: dict[str, Any] = {name: {"a": [f"a/{width}.jpg" for width in widths]} for name in SPLITS}
    pack(raw, split, tmp_path / "packed", pack_size=16)
    assert PackedSplit(tmp_path / "packed", "train").images.shape == (2, 16, 16, 3)
    with pytest.raises(DataError, match="split val has no image"):
        pack(raw, {**split, "val": {}}, tmp_path / "out", pack_size=16)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["packed", "raw"]


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


def _replace(old: bytes, new: bytes) -> Harm:
    return lambda path: path.write_bytes(path.read_bytes().replace(old, new))


NO_MANIFEST = f"{MANIFEST}: not a PackManifest ("
HARMS: dict[str, tuple[str, Harm, str]] = {
    "cut off": ("val.images.npy", lambda path: path.write_bytes(path.read_bytes()[:-1]), "cannot be read"),
    "too few": ("val.images.npy", _save(np.zeros((17, 16, 16, 3), np.uint8)), "not uint8 [18, 16, 16, 3]"),
    "objects": ("val.images.npy", _save(np.array([{}])), "cannot be read"),
    "sizes": ("val.sizes.npy", _save(np.array([6, 6, 3, 3])), "not int64 [3]"),
    "offsets": ("val.offsets.npy", _save(np.arange(18)), "not int64 [19]"),
    "few bytes": (
        "val.encoded.bin",
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        "bytes of its images",
    ),
    "no bytes": ("val.encoded.bin", lambda path: path.write_bytes(b""), "cannot be read"),
    "no images": (MANIFEST, _replace(b'"images": 18', b'"images": 0'), f"{NO_MANIFEST}splits.test.images"),
    "no split": (MANIFEST, _replace(b'"val"', b'"other"'), "it has no split val"),
    "an empty manifest": (MANIFEST, lambda path: path.write_bytes(b""), NO_MANIFEST),
    "no manifest": (MANIFEST, Path.unlink, f"{MANIFEST}: missing"),
}


@pytest.mark.parametrize(("file", "harm", "message"), HARMS.values(), ids=HARMS)
def test_harm_is_told_in_one_line(
    tiny_packed: Path, tmp_path: Path, file: str, harm: Harm, message: str
) -> None:
    packed = tmp_path / "packed"
    shutil.copytree(tiny_packed, packed)
    harm(packed / file)
    split = PackedSplit(packed, "val")
    with pytest.raises(DataError) as caught:
        _ = split.images, split.class_sizes, split.encoded(0)
    assert all(part in str(caught.value) for part in (f"{packed / file}: ", message, "run `dvc repro"))
