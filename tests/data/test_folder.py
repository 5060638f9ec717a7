"""A user's own images: any sizes and modes, with or without train, val and test."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from parashot.data.raw import RawManifest, write_raw
from parashot.data.sources.folder import folder
from parashot.errors import DataError


def _save(path: Path, mode: str = "RGB", size: tuple[int, int] = (6, 4)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size).save(path)


def _store(path: Path, out: Path) -> RawManifest:
    return write_raw(out, folder(path), "folder", "fail", lambda _: None)


def _members(manifest: RawManifest) -> list[str]:
    return [f"{label}/{name}" for label, names in manifest.images.items() for name in names]


def test_class_folders_of_anything(tmp_path: Path) -> None:
    _save(tmp_path / "set/cat/a.png", "L", (9, 3))
    _save(tmp_path / "set/cat/deep/er/a.png", "RGBA")
    _save(tmp_path / "set/dog/b.jpg", "CMYK")
    _save(tmp_path / "set/dog/c.GIF", "P")
    _save(tmp_path / "set/.hidden/d.png")
    (tmp_path / "set/dog/notes.txt").write_text("not an image")
    manifest = _store(tmp_path / "set", tmp_path / "raw")
    assert _members(manifest) == ["cat/a.png", "cat/deep_er_a.png", "dog/b.jpg", "dog/c.GIF"]
    assert manifest.splits is None
    assert manifest.encoding == "as found"


@pytest.mark.parametrize("val", ["val", "Validation", "valid"])
def test_split_folders_give_the_split(tmp_path: Path, val: str) -> None:
    for place in ("train/a", "train/b", f"{val}/c", "test/d"):
        _save(tmp_path / "set" / place / "1.png")
    manifest = _store(tmp_path / "set", tmp_path / "raw")
    assert manifest.splits == {"train": ("a", "b"), "val": ("c",), "test": ("d",)}
    assert _members(manifest) == ["a/1.png", "b/1.png", "c/1.png", "d/1.png"]


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    for label in ("train", "bus", "tram"):
        _save(tmp_path / "set" / label / "1.png")
    manifest = _store(tmp_path / "set", tmp_path / "raw")
    assert manifest.splits is None
    assert _members(manifest) == ["bus/1.png", "train/1.png", "tram/1.png"]


@pytest.mark.parametrize("wrapping", ["", "birds/", "birds/images/"])
@pytest.mark.parametrize("split", [False, True])
def test_a_zip_with_folders_around(tmp_path: Path, wrapping: str, split: bool) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4)).save(buffer, "PNG")
    tops = ("train/a", "val/b", "test/c") if split else ("a", "b", "c")
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for top in tops:
            archive.writestr(f"{wrapping}{top}/1.png", buffer.getvalue())
    manifest = _store(tmp_path / "x.zip", tmp_path / "raw")
    assert _members(manifest) == ["a/1.png", "b/1.png", "c/1.png"]
    assert (manifest.splits is not None) == split


def _loose(root: Path) -> None:
    _save(root / "a/1.png")
    _save(root / "2.png")


def _no_val(root: Path) -> None:
    _save(root / "train/a/1.png")
    _save(root / "test/b/1.png")


def _fourth(root: Path) -> None:
    _no_val(root)
    _save(root / "extra/c/1.png")


def _shared(root: Path) -> None:
    _no_val(root)
    _save(root / "val/a/2.png")


def _newline(root: Path) -> None:
    _save(root / "a/1\n2.png")


def _clash(root: Path) -> None:
    _save(root / "a/b/1.png")
    _save(root / "a/b_1.png")
    _save(root / "c/1.png")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda root: root.mkdir(), "no image in it"),
        (_loose, r"2\.png lies in no class folder"),
        (_no_val, "no val folder"),
        (_fourth, "extra lies beside train, val and test"),
        (_shared, "class a is in t.* and in "),
        (_newline, r"'1\\n2\.png' is not a plain file name"),
        (_clash, r"a/b_1\.png: this image comes twice"),
    ],
    ids=["empty", "loose", "no val", "fourth", "shared", "newline", "clash"],
)
def test_faults_are_named_in_one_line(tmp_path: Path, make: Callable[[Path], None], message: str) -> None:
    make(tmp_path / "set")
    with pytest.raises(DataError, match=message) as caught:
        _store(tmp_path / "set", tmp_path / "raw")
    assert str(caught.value).isprintable()
    assert not (tmp_path / "raw").exists()
