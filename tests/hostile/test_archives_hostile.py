"""Tars, zips and folders that mean harm: refused in one line, or read as what they plainly hold."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import struct
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from answers import Answered, Refused
from tiny_data import tiny_params

from parashot.data import archives
from parashot.data.archives import members
from parashot.data.sources import download, fingerprint
from parashot.errors import DataError

Make = Callable[[Path], object]

PLAIN = b"a plain file"


def _read(path: Path) -> dict[str, bytes]:
    return {member.name: member.read() for member in members(path, nested=True)}


def _header(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, link: str = "") -> bytes:
    entry = tarfile.TarInfo(name)
    entry.type, entry.size, entry.linkname = kind, size, link
    return entry.tobuf(tarfile.PAX_FORMAT)


def _block(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


END = bytes(1024)


def _tar(*names: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    data = PLAIN if kind == tarfile.REGTYPE else b""
    return b"".join(_header(each, kind, len(data), link) + _block(data) for each in names) + END


def _zip(*names: str, mode: int = 0, data: bytes = PLAIN, packed: bool = False) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as archive:
        for name in names:
            entry = zipfile.ZipInfo("placeholder")
            entry.filename, entry.compress_type = name, archive.compression
            entry.external_attr = mode << 16
            archive.writestr(entry, data)
    return buffer.getvalue()


def _set(data: bytes, signature: bytes, offset: int, form: str, value: int, last: bool = False) -> bytes:
    """`data` with a number written `offset` bytes after `signature`."""
    at = (data.rindex(signature) if last else data.index(signature)) + offset
    changed = bytearray(data)
    struct.pack_into(form, changed, at, value)
    return bytes(changed)


CENTRAL, LOCAL, FINAL = b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"

# --- names ------------------------------------------------------------------------------------------------

OUTSIDE = [
    "../x.jpg",
    "a/../../x.jpg",
    "a/..",
    "..",
    "/x.jpg",
    "//host/x.jpg",
    "..\\x.jpg",
    "a\\..\\..\\x.jpg",
    "\\\\host\\x.jpg",
    "./../x.jpg",
    "a/./../../x.jpg",
    "../\x1b[2J\n.jpg",
    "../\u202egpj.exe",
    "../" + "x" * 3_000,
]


@pytest.mark.parametrize("make", [_tar, _zip], ids=["tar", "zip"])
@pytest.mark.parametrize("name", OUTSIDE, ids=range(len(OUTSIDE)))
def test_names_that_lead_out(
    tmp_path: Path, refused: Refused, make: Callable[[str], bytes], name: str
) -> None:
    (tmp_path / "x").write_bytes(make(name))
    refused(DataError, lambda: _read(tmp_path / "x"), "leads out of the archive, refused", f"{tmp_path}/x")


ALIKE = {
    "case": ("cat/1.jpg", "cat/1.JPG"),
    "case of a folder": ("Cat/1.jpg", "cat/2.jpg"),
    "case of a folder above": ("a/Cat/b/1.jpg", "a/cat/b/2.jpg"),
    "composed and decomposed": ("caf\u00e9/1.jpg", "cafe\u0301/2.jpg"),
    "composed and decomposed file": ("a/\u00e9.jpg", "a/e\u0301.jpg"),
    "sharp s": ("stra\u00dfe/1.jpg", "STRASSE/2.jpg"),
    "Kelvin": ("a/K.jpg", "a/\u212a.jpg"),
    "both": ("a/\u00c9.jpg", "a/e\u0301.jpg"),
}


def _folder(path: Path, *names: str) -> None:
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(PLAIN)


@pytest.mark.parametrize("how", ["tar", "zip", "folder"])
@pytest.mark.parametrize("names", ALIKE.values(), ids=ALIKE)
def test_names_that_are_one_elsewhere(
    tmp_path: Path, refused: Refused, how: str, names: tuple[str, str]
) -> None:
    if how == "folder":
        _folder(tmp_path / "x", *names)
    else:
        (tmp_path / "x").write_bytes({"tar": _tar, "zip": _zip}[how](*names))
    refused(DataError, lambda: _read(tmp_path / "x"), "differ by case or Unicode form alone")


ODD = {
    "the same name twice": ("a/1.jpg", "a/1.jpg"),
    "a file and a folder of one name": ("a", "a/1.jpg"),
    "dots and slashes": (".//a//./1.jpg",),
    "a newline": ("a/\n.jpg",),
    "a right-to-left override": ("a/\u202egpj.exe",),
    "a drive": ("C:/1.jpg",),
    "a device of Windows": ("CON.jpg",),
    "dollars and quotes": ("a/$(touch x)';\".jpg",),
    "an option": ("--help.jpg",),
}


@pytest.mark.parametrize("make", [_tar, _zip], ids=["tar", "zip"])
@pytest.mark.parametrize("names", ODD.values(), ids=ODD)
def test_odd_names_are_only_names(
    tmp_path: Path, answered: Answered, make: Callable[..., bytes], names: tuple[str, ...]
) -> None:
    """Nothing is extracted, so they have nowhere to lead."""
    (tmp_path / "x").write_bytes(make(*names))
    assert set(_read(tmp_path / "x").values()) == {PLAIN}
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    answered()


# --- kinds ------------------------------------------------------------------------------------------------

KINDS: dict[str, bytes] = {
    "tar symlink": _tar("x", kind=tarfile.SYMTYPE, link="/etc/passwd"),
    "tar symlink within": _tar("x", kind=tarfile.SYMTYPE, link="y"),
    "tar hard link": _tar("x", kind=tarfile.LNKTYPE, link="../y"),
    "tar character device": _tar("x", kind=tarfile.CHRTYPE),
    "tar block device": _tar("x", kind=tarfile.BLKTYPE),
    "tar fifo": _tar("x", kind=tarfile.FIFOTYPE),
    "tar sparse": _tar("x", kind=tarfile.GNUTYPE_SPARSE),
    "tar hidden symlink": _tar(".x", kind=tarfile.SYMTYPE, link="/"),
    "zip symlink": _zip("x", mode=0o120777),
    "zip character device": _zip("x", mode=0o020666),
    "zip block device": _zip("x", mode=0o060666),
    "zip fifo": _zip("x", mode=0o010666),
    "zip socket": _zip("x", mode=0o140666),
}


@pytest.mark.parametrize("data", KINDS.values(), ids=KINDS)
def test_only_plain_files(tmp_path: Path, refused: Refused, data: bytes) -> None:
    (tmp_path / "x").write_bytes(data)
    refused(DataError, lambda: _read(tmp_path / "x"), "is a link or device, refused; pack plain files")


@pytest.mark.parametrize("kind", ["fifo", "device", "socket"])
def test_no_file_at_all(tmp_path: Path, refused: Refused, kind: str) -> None:
    """Opened, a FIFO would wait for ever, and /dev/zero has no end."""
    path = Path("/dev/zero") if kind == "device" else tmp_path / "x.tar"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        os.mknod(path, 0o140600)
    refused(DataError, lambda: _read(path), "neither a folder nor a tar or zip archive")
    params = replace(tiny_params().data, source="folder", archive=str(path))
    with pytest.raises(DataError, match="neither a file nor a folder"):
        fingerprint(params, tmp_path)
    with pytest.raises(DataError, match="neither a file nor a folder"):
        download(params, 0, tmp_path, tmp_path, tmp_path / "out", lambda _: None)


def test_a_folder_that_holds_itself(tmp_path: Path, answered: Answered) -> None:
    _folder(tmp_path / "x", "a/1.jpg")
    (tmp_path / "x" / "a" / "up").symlink_to(tmp_path / "x")
    os.mkfifo(tmp_path / "x" / "a" / "2.jpg")
    (tmp_path / "x" / "a" / "3.jpg").symlink_to("nowhere")
    assert list(_read(tmp_path / "x")) == ["a/1.jpg"]
    answered()


# --- bombs ------------------------------------------------------------------------------------------------

ZEROS = bytes(2**20)
GIB = 2**30


def _claiming(size: int) -> bytes:
    return _header("x.pkl", size=size)


def _zip_claiming(size: int) -> bytes:
    data = _zip("x", data=ZEROS[:5000], packed=True)
    return _set(_set(data, CENTRAL, 24, "<I", size), LOCAL, 22, "<I", size)


def _overlapping() -> bytes:
    """Many names for the same packed bytes, as in Fifield's zip bomb."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("0", ZEROS[:100_000])
        first = archive.infolist()[0]
        for _ in range(5_000):
            entry = zipfile.ZipInfo("0")
            entry.header_offset, entry.compress_type = first.header_offset, first.compress_type
            entry.CRC, entry.compress_size, entry.file_size = first.CRC, first.compress_size, first.file_size
            archive.filelist.append(entry)
        archive._didModify = True  # type: ignore[attr-defined]
    return buffer.getvalue()


BOMBS: dict[str, tuple[bytes, str]] = {
    "tar that claims a terabyte": (_claiming(2**40), "GiB, refused"),
    "tar that claims 2 GiB": (_claiming(2 * GIB), "refused as a bomb"),
    "gzip of a tar that claims 2 GiB": (gzip.compress(_claiming(2 * GIB)), "refused as a bomb"),
    "xz of a tar that claims 2 GiB": (lzma.compress(_claiming(2 * GIB)), "refused as a bomb"),
    "tar of folders that claim": (
        _header("a", tarfile.DIRTYPE) + _claiming(2 * GIB),
        "refused as a bomb",
    ),
    "zip that claims 4 GB": (_zip_claiming(2**32 - 2), "refused as a bomb"),
    "zip that claims 300 MiB": (_zip_claiming(300 * 2**20), "refused as a bomb"),
    "long name of 2 GiB": (
        gzip.compress(_header("x", tarfile.GNUTYPE_LONGNAME, 2 * GIB)),
        "a header of 2147483648 bytes",
    ),
    "long link of 2 GiB": (_header("x", tarfile.GNUTYPE_LONGLINK, 2 * GIB), "a header of"),
    "extended header of 2 GiB": (_header("x", tarfile.XHDTYPE, 2 * GIB), "a header of"),
    "global header of 2 GiB": (_header("x", tarfile.XGLTYPE, 2 * GIB), "a header of"),
    "header of Solaris of 2 GiB": (_header("x", tarfile.SOLARIS_XHDTYPE, 2 * GIB), "a header of"),
    "second header of 2 GiB": (
        _tar("a")[:-1024] + _header("x", tarfile.XHDTYPE, 2 * GIB),
        "a header of",
    ),
}


@pytest.mark.parametrize(("data", "message"), BOMBS.values(), ids=BOMBS)
def test_bombs(tmp_path: Path, refused: Refused, data: bytes, message: str) -> None:
    (tmp_path / "x").write_bytes(data)
    refused(DataError, lambda: _read(tmp_path / "x"), message, f"{tmp_path}/x: ")


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.DIRTYPE], ids=["files", "folders"])
def test_more_entries_than_any_set_has(
    tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch, kind: bytes
) -> None:
    monkeypatch.setattr(archives, "MAX_FILES", 1_000)
    (tmp_path / "x").write_bytes(gzip.compress(_tar(*map(str, range(1_001)), kind=kind)))
    refused(DataError, lambda: _read(tmp_path / "x"), "more than 1,000 files")


def test_a_zip_of_overlapping_members(tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "x").write_bytes(_overlapping())
    refused(DataError, lambda: list(members(tmp_path / "x")), "refused as a bomb")


def test_a_bomb_within_is_not_opened(tmp_path: Path, answered: Answered) -> None:
    """An archive within an archive is a file like others."""
    inner = _zip("x", data=ZEROS, packed=True)
    (tmp_path / "x.zip").write_bytes(_zip("inner.zip", data=inner))
    assert _read(tmp_path / "x.zip") == {"inner.zip": inner}
    answered()


# --- damage and lies --------------------------------------------------------------------------------------

STORED = _zip("a.txt", "b.txt")
PACKED = _zip("a.txt", data=bytes(range(256)) * 20, packed=True)

LIES: dict[str, tuple[bytes, str]] = {
    "checksum": (_set(STORED, CENTRAL, 16, "<I", 7), "damaged"),
    "size too small": (_set(PACKED, CENTRAL, 24, "<I", 100), "damaged"),
    "size too large": (_set(PACKED, CENTRAL, 24, "<I", 100_000), "damaged"),
    "packed size too small": (_set(PACKED, CENTRAL, 20, "<I", 10), "damaged"),
    "name differs from the local one": (STORED.replace(b"a.txt", b"c.txt", 1), "damaged"),
    "local header elsewhere": (_set(STORED, CENTRAL, 42, "<I", 10_000), "damaged"),
    "method unknown": (_set(STORED, CENTRAL, 10, "<H", 77), "cannot be read"),
    "encrypted": (
        _set(_set(STORED, CENTRAL, 8, "<H", 1), LOCAL, 6, "<H", 1),
        "unpack it and give the folder",
    ),
    "patched data": (_set(_set(STORED, CENTRAL, 8, "<H", 0x20), LOCAL, 6, "<H", 0x20), "cannot be read"),
    "more members than there are": (
        _set(_set(STORED, FINAL, 10, "<H", 9), FINAL, 12, "<I", 900),
        "cut short",
    ),
    "directory elsewhere": (_set(STORED, FINAL, 16, "<I", 2**31), "damaged"),
    "over several disks": (
        STORED.replace(FINAL, b"PK\x06\x07" + struct.pack("<LQL", 1, 0, 2) + FINAL),
        "damaged",
    ),
    "needs a version to come": (_set(STORED, CENTRAL, 6, "<H", 99), "cannot be read"),
    "garbage packed": (PACKED.replace(PACKED[40:60], b"\xff" * 20, 1), "damaged"),
    "tar with a wrong checksum": (b"y" + _tar("xx")[1:], "neither a folder nor"),
    "tar whose second header is wrong": (
        _tar("a")[:1024] + b"?" * 512 + END,
        "damaged or cut short",
    ),
    "tar without an end": (_tar("a")[:1024], "damaged or cut short"),
    "tar that goes on behind its end": (
        gzip.compress(_tar("a") + bytes(65 * 2**20), 1),
        "goes on behind its end",
    ),
    "gzip of noise": (gzip.compress(os.urandom(3_000)), "neither a folder nor"),
    "gzip of nothing": (gzip.compress(b""), "neither a folder nor"),
    "gzip with a wrong checksum": (gzip.compress(_tar("a"))[:-8] + bytes(8), "damaged"),
    "gzip cut": (gzip.compress(_tar(*map(str, range(99))))[:-40], "cut short"),
    "bzip2 cut": (bz2.compress(_tar(*map(str, range(99))))[:-40], "cut short"),
    "xz cut": (lzma.compress(_tar(*map(str, range(99))))[:-40], "cut short"),
    "bzip2 of noise": (b"BZh9" + bytes(range(200)), "neither a folder nor"),
    "extended header of length 0": (
        _header("x", tarfile.XHDTYPE, 12) + _block(b"0 a=b\n0 c=d\n") + _tar("a"),
        "cut short",
    ),
    "sparse map that is none": (
        _header("x", tarfile.XHDTYPE, 47)
        + _block(b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n???")
        + _tar("a"),
        "cut short",
    ),
    "an HTML page": (b"<!doctype html><p>Quota exceeded", "the host refused the download"),
    "nothing": (b"", "neither a folder nor"),
    "a rar": (b"Rar!\x1a\x07\x01\x00" + bytes(100), "neither a folder nor"),
    "a 7z": (b"7z\xbc\xaf\x27\x1c" + bytes(100), "neither a folder nor"),
    "a zip behind a program": (b"#!/bin/sh\nexit 1\n" + STORED, "neither a folder nor"),
    "a zip cut at the front": (STORED[9:], "neither a folder nor"),
}


@pytest.mark.parametrize(("data", "message"), LIES.values(), ids=LIES)
def test_damage_and_lies(tmp_path: Path, refused: Refused, data: bytes, message: str) -> None:
    (tmp_path / "x").write_bytes(data)
    refused(DataError, lambda: _read(tmp_path / "x"), message, f"{tmp_path}/x: ")


def test_a_tar_that_ends_in_a_zip_is_a_tar(tmp_path: Path, answered: Answered) -> None:
    (tmp_path / "x").write_bytes(_header("a.zip", size=len(STORED)) + _block(STORED) + END)
    assert _read(tmp_path / "x") == {"a.zip": STORED}
    answered()
