"""The raw store: equal input gives equal bytes, bad input gives one line and nothing on disk."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from parashot.data.raw import ImageStream, RawImage, RawManifest, open_images, read_manifest, write_raw
from parashot.errors import DataError

Jpeg = Callable[[int], bytes]


def _write(out: Path, *images: RawImage, **options: Any) -> RawManifest:
    settings = {"source": "folder", "on_bad_image": "fail", "progress": lambda _: None, **options}
    splits = settings.pop("splits", None)
    return write_raw(out, ImageStream(iter(images), splits), **settings)


@pytest.fixture
def images(jpeg: Jpeg) -> list[RawImage]:
    names = [("b", "2.jpg"), ("a", "1.jpg"), ("b", "1.jpg"), ("Zürich", "x" * 150 + ".jpg")]
    return [RawImage(label, name, jpeg(number)) for number, (label, name) in enumerate(names)]


def test_store_gives_back_what_went_in(tmp_path: Path, images: list[RawImage]) -> None:
    splits = {"train": ["a"], "val": ["b"], "test": ["Zürich"]}
    written = _write(tmp_path / "raw", *images, splits=splits)
    assert read_manifest(tmp_path / "raw") == written
    assert written.images == {"Zürich": ("x" * 150 + ".jpg",), "a": ("1.jpg",), "b": ("1.jpg", "2.jpg")}
    assert (written.side, written.splits) == (8, {k: tuple(v) for k, v in splits.items()})
    with open_images(tmp_path / "raw") as read:
        assert [read(f"{image.label}/{image.name}") for image in images] == [each.data for each in images]
        with pytest.raises(DataError, match=r"a/9\.jpg is not in it"):
            read("a/9.jpg")


def test_equal_images_give_equal_bytes(tmp_path: Path, images: list[RawImage]) -> None:
    for name in ("one", "two"):
        _write(tmp_path / name, *images)
    for name in ("images.tar", "manifest.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    with tarfile.open(tmp_path / "one" / "images.tar") as tar:
        assert {(m.mtime, m.uid, m.gid, m.mode) for m in tar} == {(0, 0, 0, 0o644)}


def test_bad_image_fails_by_name_and_leaves_nothing(tmp_path: Path, images: list[RawImage]) -> None:
    with pytest.raises(DataError, match=r"^b/empty\.jpg: the file is empty; .*on_bad_image=skip$"):
        _write(tmp_path / "raw", *images, RawImage("b", "empty.jpg", b""))
    assert list(tmp_path.iterdir()) == []


def test_bad_image_is_counted_when_skipped(tmp_path: Path, images: list[RawImage]) -> None:
    bad = [RawImage("b", "z.jpg", b"<html>"), RawImage("b", "cut.jpg", images[0].data[:-300])]
    manifest = _write(tmp_path / "raw", *images, *bad, on_bad_image="skip")
    assert list(manifest.skipped) == ["b/cut.jpg", "b/z.jpg"]
    assert manifest.skipped["b/z.jpg"] == "not an image in a known format"
    assert sum(map(len, manifest.images.values())) == len(images)


@pytest.mark.parametrize("name", ["", "..", "../x.jpg", "a\\b", "new\nline.jpg", "\udcff"])
def test_names_never_become_paths(tmp_path: Path, jpeg: Jpeg, name: str) -> None:
    for image in (RawImage(name, "a.jpg", jpeg(0)), RawImage("a", name, jpeg(0))):
        with pytest.raises(DataError, match="not a plain file name") as caught:
            _write(tmp_path / "raw", image)
        assert str(caught.value).isprintable()
    assert list(tmp_path.iterdir()) == []


def test_no_image_at_all(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no readable image"):
        _write(tmp_path / "raw")


def test_source_that_dies_leaves_nothing(tmp_path: Path, images: list[RawImage]) -> None:
    def dying() -> Iterator[RawImage]:
        yield images[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_raw(tmp_path / "raw", ImageStream(dying()), "folder", "fail", lambda _: None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("images.tar", b"not a tar", "damaged"),
        ("manifest.json", None, "missing"),
        ("manifest.json", b"[1]", "not a RawManifest"),
    ],
)
def test_damaged_store_says_what_to_do(
    tmp_path: Path, images: list[RawImage], file: str, content: bytes | None, message: str
) -> None:
    _write(tmp_path / "raw", *images)
    (tmp_path / "raw" / file).unlink()
    if content is not None:
        (tmp_path / "raw" / file).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught, open_images(tmp_path / "raw"):
        read_manifest(tmp_path / "raw")
    assert file in str(caught.value) and "`download`" in str(caught.value)
