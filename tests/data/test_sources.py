"""`download` and `fingerprint`: the one door to all sources."""

from __future__ import annotations

import dataclasses
import logging
import os
import shutil
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from copies import as_folder, as_tar, jpeg
from PIL import Image
from running import running

from parashot.data import images, sources
from parashot.data.raw import RawManifest, write_raw
from parashot.data.sources import download, fingerprint
from parashot.data.sources.folder import folder
from parashot.data.sources.miniimagenet import class_splits, miniimagenet
from parashot.data.sources.mirrors import RemoteFile
from parashot.errors import DataError
from parashot.params import DataParams, SyntheticParams

SYNTHETIC = DataParams("synthetic", None, "fail", 84, SyntheticParams(2, 16))


def _from(source: Any, archive: str | None) -> DataParams:
    return dataclasses.replace(SYNTHETIC, source=source, archive=archive)


@pytest.fixture
def birds(tmp_path: Path) -> Path:
    names = ("a/1.jpg", "a/2.jpg", "b/1.jpg")
    return as_folder(tmp_path / "birds", {name: jpeg(number) for number, name in enumerate(names)})


def test_a_folder_relative_to_the_root_whose_bad_images_are_skipped(tmp_path: Path, birds: Path) -> None:
    (birds / "a" / "1.jpg").write_bytes(b"")
    params = dataclasses.replace(_from("folder", "birds"), on_bad_image="skip")
    manifest = download(params, 0, tmp_path, tmp_path / "cache", tmp_path / "raw")
    assert (manifest.source, manifest.images) == ("folder", {"a": ("2.jpg",), "b": ("1.jpg",)})
    assert manifest.skipped == {"a/1.jpg": "the file is empty"}


def test_an_image_whose_file_is_too_large_is_a_bad_one(
    tmp_path: Path, birds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "MAX_BYTES", (birds / "a/2.jpg").stat().st_size + 99)
    (birds / "a/1.jpg").write_bytes(bytes(images.MAX_BYTES + 1))
    params = _from("folder", "birds")
    with pytest.raises(DataError, match=r"a/1\.jpg: .* bytes, more than .*; replace it"):
        download(params, 0, tmp_path, tmp_path / "cache", tmp_path / "raw")
    skipping = dataclasses.replace(params, on_bad_image="skip")
    manifest = download(skipping, 0, tmp_path, tmp_path / "cache", tmp_path / "raw")
    assert manifest.skipped.keys() == {"a/1.jpg"} and manifest.images["a"] == ("2.jpg",)


def test_miniimagenet_from_the_first_mirror_that_has_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "served"
    whole = {f"images/{label}00000001.jpg": jpeg(0) for labels in class_splits().values() for label in labels}
    as_tar(place / "whole", whole, "w:gz")
    as_tar(place / "lacking", dict(list(whole.items())[:-1]), "w:gz")
    (place / "short").write_bytes((place / "whole").read_bytes()[:2_000])
    (place / "page").write_text("<html>The quota is exceeded</html>")
    names = ("page", "nowhere", "short", "lacking", "whole")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(sources, "miniimagenet", partial(miniimagenet, per_class=1))
    params = _from("miniimagenet", None)
    caplog.set_level(logging.INFO)
    handler = partial(SimpleHTTPRequestHandler, directory=str(place))
    with running(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as address:
        mirrors = {name: [RemoteFile(f"{address}/{name}", "mini.tar.gz")] for name in names}
        monkeypatch.setattr(sources, "MIRRORS", mirrors)
        manifest = download(params, 0, tmp_path, tmp_path / "cache", tmp_path / "raw")
    assert {len(names) for names in manifest.images.values()} == {1}
    assert len(manifest.images) == 100
    assert [line.split(":")[0] for line in caplog.messages if line.startswith("mirror")] == [
        f"mirror {name}" for name in names[:-1]
    ]
    assert not any(path.is_file() for path in (tmp_path / "cache").rglob("mini.tar.gz"))


@pytest.mark.parametrize(("archive", "message"), [("nowhere", "nowhere is neither"), (None, "null")])
def test_an_archive_that_is_none(tmp_path: Path, archive: str | None, message: str) -> None:
    params = _from("folder", archive)
    with pytest.raises(DataError, match=rf"data\.archive: .*{message}"):
        download(params, 0, tmp_path, tmp_path / "cache", tmp_path / "raw")


def test_fingerprint_is_of_contents_not_of_place_or_time(tmp_path: Path, birds: Path) -> None:
    before = fingerprint(_from("folder", "birds"), tmp_path)
    shutil.copytree(birds, tmp_path / "elsewhere" / "other")
    os.utime(tmp_path / "elsewhere" / "other" / "a" / "1.jpg", (1, 1))
    (tmp_path / "elsewhere" / "other" / ".DS_Store").write_bytes(b"x")
    assert fingerprint(_from("folder", "elsewhere/other"), tmp_path) == before
    assert before["archive"] is not None


def test_fingerprint_sees_every_change(tmp_path: Path, birds: Path) -> None:
    seen = [fingerprint(_from("folder", "birds"), tmp_path)]

    def changed() -> None:
        seen.append(fingerprint(_from("folder", "birds"), tmp_path))
        assert seen[-1] not in seen[:-1]

    one, other = birds / "a/1.jpg", birds / "b/1.jpg"
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    changed()
    one.write_bytes(second + b"x")
    changed()
    one.rename(birds / "a/3.jpg")
    changed()


def test_fingerprint_of_a_file_and_of_none(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"one")
    (tmp_path / "y.tar").write_bytes(b"one")
    one, same = (fingerprint(_from("miniimagenet", name), tmp_path) for name in ("x.tar", "y.tar"))
    assert one == same
    (tmp_path / "y.tar").write_bytes(b"two")
    assert fingerprint(_from("miniimagenet", "y.tar"), tmp_path) != one
    assert fingerprint(SYNTHETIC, tmp_path) == {"source": "synthetic", "archive": None}


# --- folders of a user's own images: any sizes and modes, with or without train, val and test ---------------


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
