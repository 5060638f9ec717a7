"""A tar and a zip become the folder they were made of; unsafe and damaged ones are refused."""

from __future__ import annotations

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

FILES = {"a/1.txt": b"one", "a/2.txt": b"", "b.bin": bytes(100_000), ".hidden": b"x", "a/.DS_Store": b"x"}
SEEN = {name: data for name, data in FILES.items() if "/." not in f"/{name}"}


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
    with pytest.raises(DataError, match=message) as caught:
        _read(path)
    assert str(caught.value).isprintable()
    assert str(path) in str(caught.value)
    assert sorted(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    "make",
    [as_folder, as_tar, partial(as_tar, mode="w:gz"), partial(as_tar, mode="w:xz"), as_zip],
    ids=["folder", "tar", "tar.gz", "tar.xz", "zip"],
)
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


def test_an_error_within_names_the_archive(tmp_path: Path) -> None:
    path = as_zip(tmp_path / "x.zip", FILES)
    with pytest.raises(DataError, match=rf"^{path}: of no use"), unpacked(path, tmp_path / "scratch"):
        raise DataError("of no use")


def _tar_with(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with tarfile.open(path, mode="w") as tar:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            tar.addfile(member)

    return make


def _encrypted(path: Path) -> None:
    data = bytearray(as_zip(path, FILES).read_bytes())
    data[6] = data[data.index(b"PK\x01\x02") + 8] = 1
    path.write_bytes(data)


def _wrong_byte(path: Path) -> None:
    data = bytearray(as_zip(path, FILES).read_bytes())
    data[data.index(b"1.txt") + len(b"1.txt")] ^= 0xFF
    path.write_bytes(data)


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "tar up": (_tar_with("a/../../x.jpg"), "outside the destination"),
    "tar symlink": (_tar_with("x", tarfile.SYMTYPE, "/etc/passwd"), "link or device"),
    "tar hard link": (_tar_with("x", tarfile.LNKTYPE, "y"), "link or device"),
    "tar control": (_tar_with("../\x1b[31m\n"), r"\\x1b\[31m"),
    "text": (lambda path: path.write_bytes(b"filename,label\n"), "neither a folder nor a tar or zip"),
    "a zip with a wrong byte": (_wrong_byte, "cannot be unpacked"),
    "an encrypted zip": (_encrypted, "unpack it and give the folder"),
}


@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
def test_unsafe_and_damaged_archives_are_refused(
    tmp_path: Path, make: Callable[[Path], object], message: str
) -> None:
    make(tmp_path / "x")
    _refused(tmp_path / "x", message)


@pytest.mark.parametrize("name", ["../../x.jpg", "/x.jpg"])
def test_names_in_a_zip_lead_nowhere_else(tmp_path: Path, name: str) -> None:
    assert list(_read(as_zip(tmp_path / "x", {name: b"x"}))) == ["x.jpg"]


@pytest.mark.parametrize(
    ("make", "kept"),
    [
        *((as_tar, kept) for kept in (300, 1_024, 1_300, 60_000, -10_240)),
        (partial(as_tar, mode="w:gz"), 60),
        (partial(as_tar, mode="w:xz"), -60),
        (as_zip, -30),
    ],
)
def test_a_cut_archive_is_never_taken_for_a_whole_one(tmp_path: Path, make: Make, kept: int) -> None:
    path = make(tmp_path / "x", FILES)
    path.write_bytes(path.read_bytes()[:kept])
    _refused(path, "cut short|cannot be unpacked")


@pytest.mark.parametrize("make", [as_tar, as_zip])
def test_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Make) -> None:
    monkeypatch.setattr(archives, "MAX_BYTES", 50_000)
    _refused(make(tmp_path / "x", FILES), "holds more than")
