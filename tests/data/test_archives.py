"""A folder, a tar and a zip of the same files are the same; hostile and damaged ones are refused."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from parashot.data import archives
from parashot.data.archives import members
from parashot.errors import DataError

FILES = {"a/1.txt": b"one", "a/2.txt": b"", "b.bin": bytes(100_000), ".hidden": b"x", "a/.DS_Store": b"x"}
SEEN = {name: data for name, data in FILES.items() if "/." not in f"/{name}"}


def _folder(path: Path) -> Path:
    for name, data in FILES.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def _tar(path: Path, mode: str = "w") -> Path:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, data in FILES.items():
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        folder = tarfile.TarInfo("empty")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
    return path


def _zip(path: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.mkdir("a")
        for name, data in FILES.items():
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize(
    "make",
    [_folder, _tar, lambda path: _tar(path, "w:gz"), lambda path: _tar(path, "w:xz"), _zip],
    ids=["folder", "tar", "tar.gz", "tar.xz", "zip"],
)
def test_every_container_gives_the_same_files(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    found = {member.name: (member.size, member.read()) for member in members(make(tmp_path / "x"))}
    assert found == {name: (len(data), data) for name, data in SEEN.items()}


def test_archives_within_a_folder(tmp_path: Path) -> None:
    _tar(tmp_path / "one.tar")
    (tmp_path / "two.txt").write_bytes(b"two")
    assert [member.name for member in members(tmp_path)] == ["one.tar", "two.txt"]
    assert {member.name for member in members(tmp_path, nested=True)} == {*SEEN, "two.txt"}


def test_links_in_a_folder_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.txt").write_bytes(b"x")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "class").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "up").symlink_to(tmp_path / "set")
    assert [member.name for member in members(tmp_path / "set")] == ["class/x.txt"]


def _tar_with(path: Path, name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> Path:
    with tarfile.open(path, "w") as tar:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, target
        tar.addfile(member)
    return path


def _zip_with(path: Path, name: str, mode: int = 0) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        entry = zipfile.ZipInfo(name)
        entry.external_attr = mode << 16
        archive.writestr(entry, b"/etc/passwd")
    return path


HOSTILE: dict[str, tuple[Callable[[Path], Path], str]] = {
    "tar up": (lambda path: _tar_with(path, "../x.jpg"), "leads out"),
    "tar absolute": (lambda path: _tar_with(path, "/x.jpg"), "leads out"),
    "tar symlink": (lambda path: _tar_with(path, "x", tarfile.SYMTYPE, "/etc/passwd"), "link or device"),
    "tar hard link": (lambda path: _tar_with(path, "x", tarfile.LNKTYPE, "y"), "link or device"),
    "tar device": (lambda path: _tar_with(path, "x", tarfile.CHRTYPE), "link or device"),
    "tar control": (lambda path: _tar_with(path, "../\x1b[31m\n"), r"\\x1b\[31m\\n leads out"),
    "zip up": (lambda path: _zip_with(path, "a/../../x.jpg"), "leads out"),
    "zip backslash": (lambda path: _zip_with(path, "..\\x.jpg"), "leads out"),
    "zip symlink": (lambda path: _zip_with(path, "x", 0o120777), "link or device"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_members_are_refused(tmp_path: Path, name: str) -> None:
    make, message = HOSTILE[name]
    with pytest.raises(DataError, match=message) as caught:
        [member.read() for member in members(make(tmp_path / "x"))]
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("mode", "kept"),
    [("w", 300), ("w", 1_024), ("w", 1_300), ("w", 60_000), ("w", -10_240), ("w:gz", 60), ("w:gz", -20)],
)
def test_a_cut_tar_is_never_taken_for_a_whole_one(tmp_path: Path, mode: str, kept: int) -> None:
    data = _tar(tmp_path / "x", mode).read_bytes()
    (tmp_path / "x").write_bytes(data[:kept])
    with pytest.raises(DataError, match="cut short"):
        [member.read() for member in members(tmp_path / "x")]


def test_a_cut_zip(tmp_path: Path) -> None:
    data = _zip(tmp_path / "x").read_bytes()
    (tmp_path / "x").write_bytes(data[:-30])
    with pytest.raises(DataError, match="cut short"):
        list(members(tmp_path / "x"))


def test_a_zip_with_a_wrong_byte(tmp_path: Path) -> None:
    data = bytearray(_zip(tmp_path / "x").read_bytes())
    at = data.index(b"1.txt") + len(b"1.txt")
    data[at] ^= 0xFF
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(DataError, match="damaged"):
        [member.read() for member in members(tmp_path / "x")]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"filename,label\n", "neither a folder nor a tar or zip"),
        (b"", "neither a folder nor a tar or zip"),
        (b"\n <!DOCTYPE html><html>Quota exceeded</html>", "HTML page, not an archive"),
    ],
)
def test_no_archive_at_all(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "mini.tar.gz").write_bytes(data)
    with pytest.raises(DataError, match=message):
        list(members(tmp_path / "mini.tar.gz"))


@pytest.mark.parametrize(("bound", "value"), [("MAX_FILES", 2), ("MAX_BYTES", 50_000)])
@pytest.mark.parametrize("make", [_tar, _zip])
def test_bombs_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], Path], bound: str, value: int
) -> None:
    monkeypatch.setattr(archives, bound, value)
    with pytest.raises(DataError, match="refused"):
        list(members(make(tmp_path / "x")))


def test_a_file_too_large_to_be_an_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_FILE_BYTES", 99_999)
    with pytest.raises(DataError, match=r"b\.bin: 100000 bytes"):
        [member.read() for member in members(_tar(tmp_path / "x"))]
