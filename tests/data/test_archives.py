"""A folder, a tar and a zip of the same files are the same; unsafe and damaged ones are refused."""

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


def _read(path: Path) -> dict[str, bytes]:
    return {member.name: member.read() for member in members(path)}


def _refused(path: Path, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        _read(path)
    assert str(caught.value).isprintable()
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [_folder, _tar, lambda path: _tar(path, "w:gz"), lambda path: _tar(path, "w:xz"), _zip],
    ids=["folder", "tar", "tar.gz", "tar.xz", "zip"],
)
def test_every_container_gives_the_same_files(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    path = make(tmp_path / "x")
    assert _read(path) == SEEN
    assert {member.name: member.size for member in members(path)} == {k: len(v) for k, v in SEEN.items()}


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


def _tar_with(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, target
        tar.addfile(member)
    return buffer.getvalue()


def _zip_with(name: str, mode: int = 0) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        entry = zipfile.ZipInfo(name)
        entry.external_attr = mode << 16
        archive.writestr(entry, b"/etc/passwd")
    return buffer.getvalue()


UNSAFE: dict[str, tuple[bytes, str]] = {
    "tar up": (_tar_with("a/../../x.jpg"), "leads out"),
    "tar absolute": (_tar_with("/x.jpg"), "leads out"),
    "tar symlink": (_tar_with("x", tarfile.SYMTYPE, "/etc/passwd"), "link or device"),
    "tar hard link": (_tar_with("x", tarfile.LNKTYPE, "y"), "link or device"),
    "tar device": (_tar_with("x", tarfile.CHRTYPE), "link or device"),
    "tar hidden symlink": (_tar_with(".x", tarfile.SYMTYPE, "/"), "link or device"),
    "tar control": (_tar_with("../\x1b[31m\n"), r"\\x1b\[31m\\n leads out"),
    "zip up": (_zip_with("a/../../x.jpg"), "leads out"),
    "zip backslash": (_zip_with("..\\x.jpg"), "leads out"),
    "zip symlink": (_zip_with("x", 0o120777), "link or device"),
    "text": (b"filename,label\n", "neither a folder nor a tar or zip"),
    "nothing": (b"", "neither a folder nor a tar or zip"),
    "a web page": (b"\n <!DOCTYPE html><html>Quota exceeded</html>", "HTML page, not an archive"),
}


@pytest.mark.parametrize(("data", "message"), UNSAFE.values(), ids=UNSAFE)
def test_unsafe_archives_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "x").write_bytes(data)
    _refused(tmp_path / "x", message)


@pytest.mark.parametrize(
    ("make", "kept"),
    [
        *((_tar, kept) for kept in (300, 1_024, 1_300, 60_000, -10_240)),
        (lambda path: _tar(path, "w:gz"), 60),
        (lambda path: _tar(path, "w:xz"), -60),
        (_zip, -30),
    ],
)
def test_a_cut_archive_is_never_taken_for_a_whole_one(
    tmp_path: Path, make: Callable[[Path], Path], kept: int
) -> None:
    data = make(tmp_path / "x").read_bytes()
    (tmp_path / "x").write_bytes(data[:kept])
    _refused(tmp_path / "x", "cut short")


def test_a_zip_with_a_wrong_byte(tmp_path: Path) -> None:
    data = bytearray(_zip(tmp_path / "x").read_bytes())
    data[data.index(b"1.txt") + len(b"1.txt")] ^= 0xFF
    (tmp_path / "x").write_bytes(data)
    _refused(tmp_path / "x", "damaged")


def test_an_encrypted_zip(tmp_path: Path) -> None:
    data = bytearray(_zip_with("a.txt"))
    data[6] = data[data.index(b"PK\x01\x02") + 8] = 1
    (tmp_path / "x").write_bytes(data)
    _refused(tmp_path / "x", "unpack it and give the folder")


@pytest.mark.parametrize("make", [_tar, _zip])
def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], Path]) -> None:
    monkeypatch.setattr(archives, "MAX_FILE_BYTES", 99_999)
    with pytest.raises(DataError, match=r"b\.bin: 100000 bytes"):
        _read(make(tmp_path / "x"))
    monkeypatch.setattr(archives, "MAX_BYTES", 50_000)
    _refused(tmp_path / "x", "holds more than")
