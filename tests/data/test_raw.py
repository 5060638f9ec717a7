"""The raw store: equal input gives equal bytes, bad input gives one line and nothing on disk."""

from __future__ import annotations

import errno
import hashlib
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from parashot.data import raw
from parashot.data.raw import ImageStream, RawImage, RawManifest, RawStore, read_manifest, write_raw
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
    _write(tmp_path / "raw", *images)
    store = RawStore.open(tmp_path / "raw")
    assert [(entry.label, entry.name) for entry in store.entries] == sorted((i.label, i.name) for i in images)
    written = {(image.label, image.name): image.data for image in images}
    for entry in store.entries:
        assert store.read(entry) == written[entry.label, entry.name]
        assert entry.member == f"{entry.label}/{entry.name}"


def test_any_tar_program_reads_it(tmp_path: Path, images: list[RawImage]) -> None:
    _write(tmp_path / "raw", *images)
    with tarfile.open(tmp_path / "raw" / "images.tar") as tar:
        members = {member.name: member for member in tar}
        assert tar.extractfile("a/1.jpg").read() == images[1].data  # type: ignore[union-attr]
    assert {(m.mtime, m.uid, m.gid, m.mode) for m in members.values()} == {(0, 0, 0, 0o644)}


def test_order_of_arrival_leaves_no_trace(tmp_path: Path, images: list[RawImage]) -> None:
    _write(tmp_path / "one", *images)
    _write(tmp_path / "two", *reversed(images))
    for name in ("images.tar", "manifest.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_manifest(tmp_path: Path, images: list[RawImage]) -> None:
    splits = {"train": ["a"], "val": ["b"], "test": ["Zürich"]}
    written = _write(tmp_path / "raw", *images, splits=splits)
    assert read_manifest(tmp_path / "raw") == written
    assert (written.classes, written.images) == (3, 4)
    assert written.images_per_class == {"Zürich": 1, "a": 1, "b": 2}
    assert written.splits == {"train": ("a",), "val": ("b",), "test": ("Zürich",)}
    assert written.sha256 == hashlib.sha256((tmp_path / "raw" / "images.tar").read_bytes()).hexdigest()


def test_replaces_an_older_store(tmp_path: Path, images: list[RawImage]) -> None:
    _write(tmp_path / "raw", *images)
    _write(tmp_path / "raw", images[0])
    assert len(RawStore.open(tmp_path / "raw").entries) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]


def test_bad_image_fails_by_name_and_leaves_nothing(tmp_path: Path, images: list[RawImage]) -> None:
    with pytest.raises(DataError, match=r"^b/empty\.jpg: the file is empty; .*on_bad_image=skip$"):
        _write(tmp_path / "raw", *images, RawImage("b", "empty.jpg", b""))
    assert list(tmp_path.iterdir()) == []


def test_bad_image_is_counted_when_skipped(tmp_path: Path, images: list[RawImage]) -> None:
    bad = [RawImage("b", "z.jpg", b"<html>"), RawImage("b", "cut.jpg", images[0].data[:-300])]
    manifest = _write(tmp_path / "raw", *images, *bad, on_bad_image="skip")
    assert [each.name for each in manifest.skipped] == ["b/cut.jpg", "b/z.jpg"]
    assert manifest.skipped[1].reason == "not an image in a known format"
    assert manifest.images == len(images)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x.jpg", "/etc/passwd", "a\\b", "new\nline.jpg", "\x1b[31m", "\udcff"]
)
def test_names_never_become_paths(tmp_path: Path, jpeg: Jpeg, name: str) -> None:
    for image in (RawImage(name, "a.jpg", jpeg(0)), RawImage("a", name, jpeg(0))):
        with pytest.raises(DataError, match="not a plain file name") as caught:
            _write(tmp_path / "raw", image)
        assert str(caught.value).isprintable()
    assert list(tmp_path.iterdir()) == []


def test_same_name_twice(tmp_path: Path, images: list[RawImage]) -> None:
    with pytest.raises(DataError, match=r"b/2\.jpg.*twice"):
        _write(tmp_path / "raw", *images, images[0])


def test_no_image_at_all(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no readable image"):
        _write(tmp_path / "raw")


def test_full_disk_leaves_nothing(
    tmp_path: Path, images: list[RawImage], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "addfile", full)
    with pytest.raises(OSError, match="No space left"):
        _write(tmp_path / "raw", *images)
    assert list(tmp_path.iterdir()) == []


def test_source_that_dies_leaves_nothing(tmp_path: Path, images: list[RawImage]) -> None:
    def dying() -> Iterator[RawImage]:
        yield images[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_raw(tmp_path / "raw", ImageStream(dying()), "folder", "fail", lambda _: None)
    assert list(tmp_path.iterdir()) == []


def test_progress_is_told(tmp_path: Path, images: list[RawImage], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw, "_PROGRESS_EVERY", 2)
    told: list[str] = []
    _write(tmp_path / "raw", *images, progress=told.append)
    assert told == ["2 images checked", "4 images checked"]


def _cut(folder: Path) -> None:
    data = (folder / "images.tar").read_bytes()
    (folder / "images.tar").write_bytes(data[: len(data) // 2])


def _overwrite(folder: Path) -> None:
    (folder / "images.tar").write_text("not a tar")


def _age(folder: Path) -> None:
    tree = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**tree, "version": 0}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_cut, "images.tar"),
        (_overwrite, "damaged"),
        (_age, "version 0"),
        (lambda folder: (folder / "images.tar").unlink(), "missing"),
        (lambda folder: (folder / "manifest.json").unlink(), "missing"),
        (lambda folder: (folder / "manifest.json").write_text("[1]"), "not a manifest"),
        (lambda folder: (folder / "manifest.json").write_text("{"), "not a manifest"),
    ],
)
def test_damaged_store_says_what_to_do(
    tmp_path: Path, images: list[RawImage], damage: Callable[[Path], None], message: str
) -> None:
    _write(tmp_path / "raw", *images)
    damage(tmp_path / "raw")
    with pytest.raises(DataError, match=message) as caught:
        RawStore.open(tmp_path / "raw")
    assert "`download`" in str(caught.value)
