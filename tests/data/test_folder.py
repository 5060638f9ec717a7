"""A user's own images: any sizes and modes, with or without train, val and test."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from parashot.data.raw import RawManifest, write_raw
from parashot.data.sources.folder import folder
from parashot.errors import DataError


def _save(root: Path, *names: str, mode: str = "RGB") -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new(mode, (6, 4)).save(root / name)


def _store(path: Path, out: Path) -> RawManifest:
    return write_raw(out, folder(path), "folder", "fail")


def _members(manifest: RawManifest) -> list[str]:
    return [f"{label}/{name}" for label, names in manifest.images.items() for name in names]


def test_class_folders_of_anything(tmp_path: Path) -> None:
    root = tmp_path / "set"
    _save(root, "cat/a.png", mode="L")
    _save(root, "cat/deep/er/a.png", mode="RGBA")
    _save(root, "dog/b.jpg", mode="CMYK")
    _save(root, "dog/c.GIF", mode="P")
    _save(root, ".hidden/d.png")
    (root / "dog/notes.txt").write_text("not an image")
    manifest = _store(root, tmp_path / "raw")
    assert _members(manifest) == ["cat/a.png", "cat/deep_er_a.png", "dog/b.jpg", "dog/c.GIF"]
    assert (manifest.splits, manifest.encoding) == (None, "as found")


@pytest.mark.parametrize(("val", "wrapping"), [("valid", ""), ("Validation", "birds/images/")])
def test_split_folders_give_the_split(tmp_path: Path, val: str, wrapping: str) -> None:
    places = ("train/a", "train/b", f"{val}/c", "test/d")
    _save(tmp_path / "set", *(f"{wrapping}{place}/1.png" for place in places))
    manifest = _store(tmp_path / "set", tmp_path / "raw")
    assert manifest.splits == {"train": ("a", "b"), "val": ("c",), "test": ("d",)}
    assert _members(manifest) == ["a/1.png", "b/1.png", "c/1.png", "d/1.png"]


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    _save(tmp_path / "set", *(f"town/{label}/1.png" for label in ("train", "bus", "tram")))
    manifest = _store(tmp_path / "set", tmp_path / "raw")
    assert manifest.splits is None
    assert _members(manifest) == ["bus/1.png", "train/1.png", "tram/1.png"]


FAULTS: dict[str, tuple[tuple[str, ...], str]] = {
    "empty": ((), "no image in it"),
    "loose": (("a/1.png", "2.png"), r"2\.png lies in no class folder"),
    "beside splits": (("train/a/1.png", "test/b/1.png", "1.png"), r"1\.png lies in no class folder"),
    "no val": (("train/a/1.png", "test/b/1.png"), "no val folder"),
    "a fourth": (("train/a/1.png", "test/b/1.png", "extra/c/1.png"), "extra lies beside train, val and test"),
    "shared": (("train/a/1.png", "test/b/1.png", "val/a/2.png"), "class a is in t.* and in "),
    "equal names": (("a/b/1.png", "a/b_1.png", "c/1.png"), r"a/b_1\.png: this image comes twice"),
}


@pytest.mark.parametrize(("names", "message"), FAULTS.values(), ids=FAULTS)
def test_faults_are_named_in_one_line(tmp_path: Path, names: tuple[str, ...], message: str) -> None:
    (tmp_path / "set").mkdir()
    _save(tmp_path / "set", *names)
    with pytest.raises(DataError, match=message):
        _store(tmp_path / "set", tmp_path / "raw")
    assert not (tmp_path / "raw").exists()
