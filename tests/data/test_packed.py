"""Packed data: real JPEGs through the raw store into arrays, whole or not at all."""

from __future__ import annotations

import pickle
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from parashot.data.images import decode, encode_jpeg
from parashot.data.manifest import (
    MANIFEST,
    PackManifest,
    SplitManifest,
    read_manifest,
    sha256,
    write_manifest,
)
from parashot.data.pack import pack
from parashot.data.packed import PackedSplit
from parashot.data.raw import ImageStream, RawImage, write_raw
from parashot.errors import DataError

CLASSES = {"train": ["a", "b", "c"], "val": ["d", "e"], "test": ["f", "g"]}
Split = dict[str, dict[str, list[str]]]


def picture(label: str, number: int, size: tuple[int, int] = (20, 20)) -> bytes:
    rng = np.random.default_rng((ord(label), number))
    return encode_jpeg(rng.integers(0, 256, (*size, 3), dtype=np.uint8))


def make_raw(folder: Path, sizes: dict[str, tuple[int, int]] | None = None) -> Split:
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
    pack(folder / "raw", split, folder / "packed", pack_size=16, progress=lambda line: None)
    return folder / "packed"


def test_pixels_and_bytes_are_those_of_the_images(tmp_path: Path) -> None:
    folder = make_packed(tmp_path)
    split = PackedSplit(folder, "val")
    assert split.class_sizes.tolist() == [4, 4]
    assert split.images.shape == (8, 20, 20, 3)
    for row, (label, number) in enumerate((label, number) for label in "de" for number in range(4)):
        assert split.encoded(row) == picture(label, number)
        np.testing.assert_array_equal(split.images[row], decode(picture(label, number)))


def test_the_manifest_identifies_the_contents(tmp_path: Path) -> None:
    folder = make_packed(tmp_path)
    manifest = read_manifest(folder)
    assert manifest.splits["train"] == SplitManifest(("a", "b", "c"), 12, 20, 20)
    files = [path for path in folder.iterdir() if path.name != MANIFEST]
    assert manifest.sha256 == {path.name: sha256(path) for path in files}


def test_images_of_several_sizes_become_squares(tmp_path: Path) -> None:
    folder = make_packed(tmp_path, {"g": (20, 21)})
    assert PackedSplit(folder, "train").images.shape == (12, 16, 16, 3)


def test_a_split_travels_without_its_arrays(tmp_path: Path) -> None:
    split = PackedSplit(make_packed(tmp_path), "train")
    assert split.images.sum() > 0
    assert len(pickle.dumps(split)) < 1000
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(split)).images, split.images)


def test_a_split_may_be_larger_than_the_memory(tmp_path: Path) -> None:
    side = 512
    images = 4 * psutil.virtual_memory().total // (3 * side * side)
    header = {"descr": "|u1", "fortran_order": False, "shape": (images, side, side, 3)}
    with (tmp_path / "train.images.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + images * 3 * side * side)  # a hole: it takes no room
    write_manifest(tmp_path, PackManifest({"train": SplitManifest(("a",), images, side, side)}, {}))
    split = PackedSplit(tmp_path, "train")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chosen = split.pixels.index_select(0, torch.tensor([0, images - 1]))
    assert chosen.shape == (2, side, side, 3)
    assert not chosen.any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda split: split["train"]["a"].append("a/9.jpg"), r"a/9\.jpg is not in it"),
        (lambda split: split["val"].clear(), "split val has no image"),
    ],
)
def test_a_wrong_split_leaves_nothing_behind(
    tmp_path: Path, change: Callable[[Split], object], message: str
) -> None:
    split = make_raw(tmp_path / "raw")
    change(split)
    with pytest.raises(DataError, match=message):
        pack(tmp_path / "raw", split, tmp_path / "packed", pack_size=16, progress=lambda line: None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["raw"]


# --- a folder that is not as its manifest says --------------------------------------------------------

Harm = Callable[[Path], object]


def _save(array: Any) -> Harm:
    return lambda path: np.save(path, array)


def _write(data: bytes) -> Harm:
    return lambda path: path.write_bytes(data)


def _replace(old: bytes, new: bytes) -> Harm:
    return lambda path: path.write_bytes(path.read_bytes().replace(old, new))


NO_MANIFEST = f"{MANIFEST}: not a PackManifest ("
HARMS: dict[str, tuple[str, Harm, str]] = {
    "cut off": ("val.images.npy", lambda path: path.write_bytes(path.read_bytes()[:-1]), "cannot be read"),
    "gone": ("val.images.npy", Path.unlink, "cannot be read"),
    "too few": ("val.images.npy", _save(np.zeros((17, 16, 16, 3), np.uint8)), "not uint8 [18, 16, 16, 3]"),
    "objects": ("val.images.npy", _save(np.array([{}])), "cannot be read"),
    "sizes": ("val.sizes.npy", _save(np.array([6, 6, 3, 3])), "not int64 [3]"),
    "offsets": ("val.offsets.npy", _save(np.arange(18)), "not int64 [19]"),
    "no images": (MANIFEST, _replace(b'"images": 18', b'"images": 0'), f"{NO_MANIFEST}splits.val.images"),
    "no split": (MANIFEST, _replace(b'"val"', b'"other"'), "it has no split val"),
    "an empty manifest": (MANIFEST, _write(b""), NO_MANIFEST),
    "a manifest in no UTF-8": (MANIFEST, _write(b"\xff\xfe"), NO_MANIFEST),
    "a deep manifest": (MANIFEST, _write(b"[" * 100_000), NO_MANIFEST),
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
    text = str(caught.value)
    assert text.isprintable()
    assert all(part in text for part in (f"{packed / file}: ", message, "run `dvc repro"))
