"""`download` and `fingerprint`: the one door to all sources."""

from __future__ import annotations

import dataclasses
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from copies import Files, as_folder, as_tar, jpeg

from parashot.data import images, sources
from parashot.data.raw import RawManifest, read_manifest, write_raw
from parashot.data.sources import download, fingerprint
from parashot.data.sources.folder import folder
from parashot.data.sources.miniimagenet import class_splits, miniimagenet
from parashot.errors import DataError
from parashot.params import DataParams, SyntheticParams

SYNTHETIC = DataParams("synthetic", None, "fail", 84, SyntheticParams(2, 16))


def _from(source: Any, archive: str | None) -> DataParams:
    return dataclasses.replace(SYNTHETIC, source=source, archive=archive)


def _download(params: DataParams, root: Path) -> RawManifest:
    download(params, 0, root, root / "cache", root / "raw")
    return read_manifest(root / "raw")


def test_a_folder_relative_to_the_root_whose_bad_images_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("a/1.jpg", "a/2.jpg", "b/1.jpg")
    birds = as_folder(tmp_path / "birds", {name: jpeg(number) for number, name in enumerate(names)})
    monkeypatch.setattr(images, "MAX_BYTES", (birds / "a/2.jpg").stat().st_size + 99)
    (birds / "a/1.jpg").write_bytes(bytes(images.MAX_BYTES + 1))
    (birds / "b/2.jpg").write_bytes(b"")
    params = _from("folder", "birds")
    with pytest.raises(DataError, match=r"a/1\.jpg: .* bytes, more than .*; replace it"):
        _download(params, tmp_path)
    manifest = _download(dataclasses.replace(params, on_bad_image="skip"), tmp_path)
    assert manifest.images == {"a": ("2.jpg",), "b": ("1.jpg",)}
    assert manifest.skipped.keys() == {"a/1.jpg", "b/2.jpg"}
    assert manifest.skipped["b/2.jpg"] == "the file is empty"


@pytest.mark.parametrize("archive", ["downloaded/mini.tar.gz", None])
def test_miniimagenet_from_an_archive_or_else_from_the_mirrors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archive: str | None
) -> None:
    whole = {f"images/{label}00000001.jpg": jpeg(0) for labels in class_splits().values() for label in labels}
    as_tar(tmp_path / "downloaded/mini.tar.gz", whole, "w:gz")
    monkeypatch.setattr(sources, "miniimagenet", partial(miniimagenet, per_class=1))
    monkeypatch.setattr(sources, "MIRRORS", "downloaded")
    monkeypatch.setattr(sources, "download_from", lambda mirrors, cache, write: write(tmp_path / mirrors))
    assert len(_download(_from("miniimagenet", archive), tmp_path).images) == 100


def test_an_archive_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.archive: .*nowhere is neither"):
        _download(_from("folder", "nowhere"), tmp_path)
    with pytest.raises(DataError, match="~nobody-of-this-name/images is neither"):  # no such user
        _download(_from("folder", "~nobody-of-this-name/images"), tmp_path)


def test_fingerprint_is_of_contents_and_sees_every_change_but_not_place_or_time(tmp_path: Path) -> None:
    sets: list[Files] = [
        {"a/1.jpg": b"one", "b/1.jpg": b"two"},
        {"a/1.jpg": b"two", "b/1.jpg": b"one"},
        {"a/1.jpg": b"twox", "b/1.jpg": b"one"},
        {"a/3.jpg": b"twox", "b/1.jpg": b"one"},
        {"a/3.jpg": b"twox", "b/1.jpg": b"one", ".DS_Store": b"x"},
    ]
    places = [as_folder(tmp_path / str(number), files) for number, files in enumerate(sets)]
    os.utime(places[-1] / "a/3.jpg", (1, 1))
    *different, again = (fingerprint(_from("folder", place.name), 0, tmp_path) for place in places)
    assert again == different[-1]
    assert len({str(each) for each in different}) == len(different)


def test_fingerprint_of_a_file_and_of_none(tmp_path: Path) -> None:
    """No images of other sources than drawn ones depend on the seed: a new one downloads nothing again."""
    files = {"x.tar": b"one", "y.tar": b"one", "z.tar": b"two"}
    as_folder(tmp_path, files)
    one, same, other = (
        fingerprint(_from("miniimagenet", name), seed, tmp_path) for seed, name in enumerate(files)
    )
    assert one == same != other
    none = [fingerprint(_from("miniimagenet", None), seed, tmp_path) for seed in (0, 1)]
    assert none == [{"source": "miniimagenet", "archive": None}] * 2


def test_fingerprint_of_drawn_images_is_how_they_are_drawn(tmp_path: Path) -> None:
    others = dataclasses.replace(SYNTHETIC, synthetic=SyntheticParams(2, 17))
    drawn = [fingerprint(params, seed, tmp_path) for params in (SYNTHETIC, others) for seed in (0, 1)]
    assert len({str(each) for each in drawn}) == len(drawn)
    assert fingerprint(SYNTHETIC, 0, tmp_path) == drawn[0]


# --- folders of a user's own images, with or without train, val and test ------------------------------------


def _stored(root: Path, *names: str) -> RawManifest:
    (root / "set").mkdir()
    as_folder(root / "set", dict.fromkeys(names, jpeg(0)))
    write_raw(root / "raw", folder(root / "set"))
    return read_manifest(root / "raw")


def test_class_folders_of_anything(tmp_path: Path) -> None:
    names = ("cat/a.png", "cat/deep/er/a.png", "dog/b.jpg", "dog/c.GIF", ".hidden/d.png", "dog/notes.txt")
    manifest = _stored(tmp_path, *names)
    assert manifest.images == {"cat": ("a.png", "deep_er_a.png"), "dog": ("b.jpg", "c.GIF")}
    assert manifest.splits is None


@pytest.mark.parametrize(("val", "wrapping"), [("valid", ""), ("Validation", "birds/images/")])
def test_split_folders_give_the_split(tmp_path: Path, val: str, wrapping: str) -> None:
    places = ("train/a", "train/b", f"{val}/c", "test/d")
    manifest = _stored(tmp_path, *(f"{wrapping}{place}/1.png" for place in places))
    assert manifest.splits == {"train": ("a", "b"), "val": ("c",), "test": ("d",)}
    assert manifest.images == dict.fromkeys("abcd", ("1.png",))


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    labels = ("train", "bus", "tram")
    manifest = _stored(tmp_path, *(f"town/{label}/1.png" for label in labels))
    assert (manifest.splits, manifest.images) == (None, dict.fromkeys(labels, ("1.png",)))


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
    with pytest.raises(DataError, match=message):
        _stored(tmp_path, *names)
    assert not (tmp_path / "raw").exists()
