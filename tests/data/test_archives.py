"""A tar and a zip become the folder they were made of; unsafe and damaged ones are refused."""

from __future__ import annotations

import errno
import os
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from copies import Files, as_folder, as_tar, as_zip

from parashot.data import archives
from parashot.data.archives import files_in, unpacked
from parashot.errors import DataError

Make = Callable[[Path, Files], Path]

SEEN = {"a/1.txt": b"one", "a/2.txt": b"", "b.bin": bytes(100_000)}
FILES = {**SEEN, ".hidden": b"x", "a/.DS_Store": b"x", "__MACOSX/a/1.txt": b"x"}


def _read(path: Path) -> Files:
    """Content of the copy at `path`; afterwards, nothing of what was unpacked is left."""
    scratch = path.parent / "scratch"
    try:
        with unpacked(path, scratch) as folder:
            top = folder if folder == path else folder / "0"
            return {each.relative_to(top).as_posix(): each.read_bytes() for each in files_in(folder)}
    finally:
        assert not scratch.exists()


def _refused(path: Path, message: str) -> None:
    with pytest.raises(DataError, match=rf"^{path}: .*({message})"):
        _read(path)
    assert sorted(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("make", [as_folder, as_tar, as_zip])
def test_every_container_gives_the_same_files(tmp_path: Path, make: Make) -> None:
    assert _read(make(tmp_path / "x", FILES)) == SEEN


def test_archives_within_a_folder(tmp_path: Path) -> None:
    place = as_folder(tmp_path / "set", {"two.txt": b"two"})
    as_tar(place / "one.tar", FILES)
    with unpacked(place, tmp_path / "scratch") as folder:
        assert [each.name for each in files_in(folder)] == ["one.tar", "two.txt"]
    with unpacked(place, tmp_path / "scratch", nested=True) as folder:
        assert {each.name for each in files_in(folder)} == {"1.txt", "2.txt", "b.bin", "one.tar", "two.txt"}
    assert [each.name for each in files_in(tmp_path)] == ["one.tar", "two.txt"]


def test_links_in_a_folder_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    elsewhere = as_folder(tmp_path / "elsewhere", {"x.txt": b"x"})
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "class").symlink_to(elsewhere)
    (elsewhere / "up").symlink_to(tmp_path / "set")
    assert list(files_in(tmp_path / "set")) == [tmp_path / "set/class/x.txt"]


def test_a_folder_that_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.scandir  # root may read everything

    def closed(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path)

    place = as_folder(tmp_path / "set", {"open/1.txt": b"one", "closed/2.txt": b"two"})
    monkeypatch.setattr(os, "scandir", closed)
    with pytest.raises(DataError, match="set/closed: cannot be read"):
        list(files_in(place))


def _tar_with(path: Path, name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> None:
    with tarfile.open(path, mode="w") as tar:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, target
        tar.addfile(member)


def _wrong_byte(path: Path) -> None:
    data = bytearray(as_zip(path, FILES).read_bytes())
    data[data.index(b"1.txt") + len(b"1.txt")] ^= 0xFF
    path.write_bytes(data)


def _cut(path: Path, make: Make, kept: int) -> None:
    path.write_bytes(make(path, FILES).read_bytes()[:kept])


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "tar up": (partial(_tar_with, name="a/../../x.jpg"), "outside the destination"),
    "tar symlink": (partial(_tar_with, name="x", kind=tarfile.SYMTYPE, target="/etc"), "link or device"),
    "text": (lambda path: path.write_bytes(b"filename,label\n"), "neither a folder nor a tar or zip"),
    "a zip with a wrong byte": (_wrong_byte, "cannot be unpacked"),
    "a tar cut after a file": (partial(_cut, make=as_tar, kept=1_024), "cut short"),
    "a tar cut in a header": (partial(_cut, make=as_tar, kept=1_300), "cut short"),
    "a tar cut in a file": (partial(_cut, make=as_tar, kept=60_000), "cannot be unpacked"),
    "a tar.xz cut": (partial(_cut, make=partial(as_tar, mode="w:xz"), kept=-60), "cut short|unpacked"),
    "a zip cut": (partial(_cut, make=as_zip, kept=-30), "cut short"),
}


@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
def test_unsafe_and_damaged_archives_are_refused(
    tmp_path: Path, make: Callable[[Path], object], message: str
) -> None:
    make(tmp_path / "x")
    _refused(tmp_path / "x", message)


def test_names_in_a_zip_lead_nowhere_else(tmp_path: Path) -> None:
    assert list(_read(as_zip(tmp_path / "x", {"../../x.jpg": b"x"}))) == ["x.jpg"]


@pytest.mark.parametrize("make", [as_tar, as_zip])
def test_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Make) -> None:
    monkeypatch.setattr(archives, "MAX_BYTES", 50_000)
    _refused(make(tmp_path / "x", FILES), "holds more than")
