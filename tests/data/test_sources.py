"""`download` and `fingerprint`: the one door to all sources."""

from __future__ import annotations

import dataclasses
import logging
import os
import shutil
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest
from copies import as_folder, as_tar, jpeg
from hosts import serving

from parashot.data import sources
from parashot.data.sources import download, fingerprint
from parashot.data.sources.miniimagenet import class_splits, miniimagenet
from parashot.data.sources.mirrors import RemoteFile
from parashot.errors import DataError
from parashot.params import DataParams, SyntheticParams

SYNTHETIC = DataParams("synthetic", None, "fail", 84, SyntheticParams(2, 16))


def _from(source: str, archive: str | None) -> DataParams:
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


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


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
    with serving(partial(_Silent, directory=str(place))) as address:
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
