"""The raw store: equal input gives equal bytes, bad input gives one line and nothing on disk."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from copies import as_folder, jpeg

from parashot.data.raw import (
    ImageStream,
    RawImage,
    RawManifest,
    Splits,
    open_images,
    read_manifest,
    write_raw,
)
from parashot.errors import DataError


def _write(out: Path, *images: RawImage, splits: Splits | None = None) -> RawManifest:
    write_raw(out, ImageStream(images, splits))
    return read_manifest(out)


NAMES = [("b", "2.jpg"), ("a", "1.jpg"), ("b", "1.jpg"), ("Zürich", "x" * 150 + ".jpg")]
IMAGES = [RawImage(label, name, jpeg(number)) for number, (label, name) in enumerate(NAMES)]


def test_store_gives_back_what_went_in(tmp_path: Path) -> None:
    splits: Splits = {"train": ("a",), "val": ("b",), "test": ("Zürich",)}
    written = _write(tmp_path / "raw", *IMAGES, splits=splits)
    assert written.images == {"Zürich": ("x" * 150 + ".jpg",), "a": ("1.jpg",), "b": ("1.jpg", "2.jpg")}
    assert (written.side, written.splits) == (8, splits)
    with open_images(tmp_path / "raw") as read:
        assert [read(f"{image.label}/{image.name}") for image in IMAGES] == [each.data for each in IMAGES]
        with pytest.raises(DataError, match=r"a/9\.jpg is not in it"):
            read("a/9.jpg")


def test_equal_images_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        _write(tmp_path / name, *IMAGES)
    for name in ("images.tar", "manifest.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    with tarfile.open(tmp_path / "one" / "images.tar") as tar:
        assert {(m.mtime, m.uid, m.gid, m.mode) for m in tar} == {(0, 0, 0, 0o644)}


def test_bad_image_fails_by_name_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^b/empty\.jpg: the file is empty; .*on_bad_image=skip$"):
        _write(tmp_path / "raw", *IMAGES, RawImage("b", "empty.jpg", b""))
    with pytest.raises(DataError, match="no readable image"):
        _write(tmp_path / "raw")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["new\nline.jpg", "\udcff"])
def test_names_are_printable_text(tmp_path: Path, name: str) -> None:
    for image in (RawImage(name, "a.jpg", jpeg(0)), RawImage("a", name, jpeg(0))):
        with pytest.raises(DataError, match="rename it"):
            _write(tmp_path / "raw", image)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_store_says_what_to_do(tmp_path: Path) -> None:
    raw = as_folder(tmp_path, {"images.tar": b"not a tar"})
    with pytest.raises(DataError, match=r"images\.tar: .*damaged .*`dvc repro"), open_images(raw):
        pass
