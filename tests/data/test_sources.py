"""`download` and `fingerprint`: the one door to all sources."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest
from copies import as_folder, as_tar
from hosts import serving

from parashot.data import sources
from parashot.data.raw import read_manifest
from parashot.data.sources import download, fingerprint
from parashot.data.sources.miniimagenet import class_splits, miniimagenet
from parashot.data.sources.mirrors import RemoteFile
from parashot.errors import DataError
from parashot.params import DataParams, SyntheticParams

Jpeg = Callable[[int], bytes]

SYNTHETIC = DataParams("synthetic", None, "fail", 84, SyntheticParams(2, 16))


def _from(source: str, archive: str | None) -> DataParams:
    return dataclasses.replace(SYNTHETIC, source=source, archive=archive)


def _quiet(_: str) -> None:
    pass


@pytest.fixture
def birds(tmp_path: Path, jpeg: Jpeg) -> Path:
    names = ("a/1.jpg", "a/2.jpg", "b/1.jpg")
    return as_folder(tmp_path / "birds", {name: jpeg(number) for number, name in enumerate(names)})


def test_synthetic(tmp_path: Path) -> None:
    manifest = download(SYNTHETIC, 5, tmp_path, tmp_path / "cache", tmp_path / "raw", _quiet)
    assert (manifest.source, len(manifest.images), manifest.side) == ("synthetic", 100, 16)
    assert read_manifest(tmp_path / "raw") == manifest


@pytest.mark.parametrize("absolute", [False, True])
def test_folder_absolute_or_relative_to_the_root(tmp_path: Path, birds: Path, absolute: bool) -> None:
    params = _from("folder", str(birds) if absolute else "birds")
    manifest = download(params, 0, tmp_path, tmp_path / "cache", tmp_path / "raw", _quiet)
    assert (manifest.source, manifest.images) == ("folder", {"a": ("1.jpg", "2.jpg"), "b": ("1.jpg",)})


def test_skipping_reaches_the_writer(tmp_path: Path, birds: Path) -> None:
    (birds / "a" / "1.jpg").write_bytes(b"")
    params = dataclasses.replace(_from("folder", "birds"), on_bad_image="skip")
    manifest = download(params, 0, tmp_path, tmp_path / "cache", tmp_path / "raw", _quiet)
    assert manifest.skipped == {"a/1.jpg": "the file is empty"}


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    """A folder, and the address under which its files are served."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    (tmp_path / "served").mkdir()
    with serving(partial(_Silent, directory=str(tmp_path / "served"))) as address:
        yield tmp_path / "served", address


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def test_miniimagenet_from_the_first_mirror_that_has_all_of_it(
    tmp_path: Path, served: tuple[Path, str], jpeg: Jpeg, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, address = served
    whole = {f"images/{label}00000001.jpg": jpeg(0) for labels in class_splits().values() for label in labels}
    as_tar(place / "whole", whole, "w:gz")
    as_tar(place / "lacking", dict(list(whole.items())[:-1]), "w:gz")
    (place / "short").write_bytes((place / "whole").read_bytes()[:2_000])
    (place / "page").write_text("<html>The quota is exceeded</html>")
    names = ("page", "nowhere", "short", "lacking", "whole")
    mirrors = {name: [RemoteFile(f"{address}/{name}", "mini.tar.gz")] for name in names}
    monkeypatch.setattr(sources, "MIRRORS", mirrors)
    monkeypatch.setattr(sources, "miniimagenet", partial(miniimagenet, per_class=1))
    told: list[str] = []
    params = _from("miniimagenet", None)
    manifest = download(params, 0, tmp_path, tmp_path / "cache", tmp_path / "raw", told.append)
    assert {len(names) for names in manifest.images.values()} == {1}
    assert len(manifest.images) == 100
    assert [line.split(":")[0] for line in told if line.startswith("mirror")] == [
        f"mirror {name}" for name in names[:-1]
    ]
    assert not any(path.is_file() for path in (tmp_path / "cache").rglob("mini.tar.gz"))


@pytest.mark.parametrize(
    ("archive", "message"), [("nowhere", "nowhere is neither"), ("/dev/zero", "is neither"), (None, "null")]
)
def test_an_archive_that_is_none(tmp_path: Path, archive: str | None, message: str) -> None:
    params = _from("folder", archive)
    with pytest.raises(DataError, match=rf"data\.archive: .*{message}"):
        download(params, 0, tmp_path, tmp_path / "cache", tmp_path / "raw", _quiet)


def test_a_fingerprint_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.archive: .*is neither"):
        fingerprint(_from("folder", "nowhere"), tmp_path)


def test_fingerprint_is_of_contents_not_of_place_or_time(tmp_path: Path, birds: Path) -> None:
    before = fingerprint(_from("folder", "birds"), tmp_path)
    shutil.copytree(birds, tmp_path / "elsewhere" / "other")
    os.utime(tmp_path / "elsewhere" / "other" / "a" / "1.jpg", (1, 1))
    (tmp_path / "elsewhere" / "other" / ".DS_Store").write_bytes(b"x")
    assert fingerprint(_from("folder", "elsewhere/other"), tmp_path) == before
    assert before["archive"] is not None


def _swap(birds: Path) -> None:
    one, two = birds / "a/1.jpg", birds / "b/1.jpg"
    data = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(data)


CHANGES: dict[str, Callable[[Path], object]] = {
    "a byte more": lambda birds: (birds / "a/1.jpg").write_bytes((birds / "a/1.jpg").read_bytes() + b"x"),
    "another name": lambda birds: (birds / "a/1.jpg").rename(birds / "a/3.jpg"),
    "two swapped": _swap,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_fingerprint_sees_every_change(tmp_path: Path, birds: Path, change: Callable[[Path], object]) -> None:
    before = fingerprint(_from("folder", "birds"), tmp_path)
    change(birds)
    assert fingerprint(_from("folder", "birds"), tmp_path) != before


def test_fingerprint_of_a_file_and_of_none(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"one")
    (tmp_path / "y.tar").write_bytes(b"one")
    one, same = (fingerprint(_from("miniimagenet", name), tmp_path) for name in ("x.tar", "y.tar"))
    assert one == same
    (tmp_path / "y.tar").write_bytes(b"two")
    assert fingerprint(_from("miniimagenet", "y.tar"), tmp_path) != one
    assert fingerprint(SYNTHETIC, tmp_path) == {"source": "synthetic", "archive": None}
