"""The files of a folder, tar or zip, one after another, without extracting anything.

Nothing is written, so no name in an archive can become a path. Names that would lead out of it, links and
devices are refused all the same, as tarfile's data filter does, and so is an archive that claims more than
any set holds, or more than compression can explain.
"""

from __future__ import annotations

import errno
import os
import tarfile
import unicodedata
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Literal, NamedTuple, Self, cast

from parashot.errors import DataError, ParashotError

MAX_FILES = 5_000_000
MAX_BYTES = 256 * 2**30
MAX_FILE_BYTES = 256 * 2**20
"""Bounds of one archive, and of one file that is read at once: beyond them it is taken for a bomb."""

MAX_RATIO = 100
"""What comes out of an archive over its own size; `MAX_FILE_BYTES` may come out of any."""

Opener = Callable[[], IO[bytes]]

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")

_TAR_BLOCK = 512
_MAX_HEADER = 2**20
_BEHIND_THE_END = 64  # times as much
_EXTENSIONS = {
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
}
"""Kinds of tar entries that say more of the one that follows."""


@dataclass(frozen=True)
class Member:
    """One file; it can be read until the next one is asked for."""

    archive: Path
    path: PurePosixPath
    size: int
    opener: Opener

    @property
    def name(self) -> str:
        """Its path inside the folder or archive."""
        return str(self.path)

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open it for reading. Raises `DataError` where the archive is damaged."""
        with _said(self.archive), self.opener() as file:
            yield file

    def read(self) -> bytes:
        """All its bytes. Raises `DataError` where there are unreasonably many."""
        if self.size > MAX_FILE_BYTES:
            raise DataError(f"{self.name}: {self.size} bytes, more than an image can have; remove it")
        with self.open() as file:
            data = file.read(self.size + 1)
            if len(data) != self.size:
                raise ValueError(f"{self.name}: {len(data)} bytes, {self.size} expected")
            return data


def members(path: Path, nested: bool = False) -> Iterator[Member]:
    """Yield the regular files of the folder or archive `path`, hidden ones left out.

    With `nested`, archives that lie in a folder are opened too. Raises `DataError` where `path` is neither a
    folder nor an archive, where an archive is damaged or hostile, and where two names differ by case or
    Unicode form alone: elsewhere they would be one.
    """
    found = _folder_members(path, nested) if path.is_dir() else _archive_members(path)
    yield from _told_apart(path, found)


def folder_files(folder: Path) -> Iterator[Path]:
    """Yield the regular files under `folder`, sorted; hidden ones are left out, links are followed."""
    seen: set[str] = set()
    for root, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(root)
        if real in seen:  # a link back up
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
        paths = (Path(root, name) for name in sorted(files) if not _is_hidden(name))
        yield from (path for path in paths if path.is_file())


def is_html(head: bytes) -> bool:
    """Whether a file that begins with `head` is a web page: what hosts send in place of a missing file."""
    start = head[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return start.startswith((b"<!doctype html", b"<html", b"<head", b"<body", b"<script", b"<?xml"))


class _Entry(NamedTuple):
    """One entry of an archive, not yet checked."""

    name: str
    kind: Literal["file", "folder", "other"]
    size: int
    opener: Opener


class _Header(tarfile.TarInfo):
    """A header whose extensions fit in memory: tarfile reads them at once, however large they claim to be."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        header = super().frombuf(buf, encoding, errors)
        if header.type in _EXTENSIONS and header.size > _MAX_HEADER:
            raise ValueError(f"a header of {header.size} bytes")
        return header


def _folder_members(path: Path, nested: bool) -> Iterator[Member]:
    for file in folder_files(path):
        if nested and file.name.lower().endswith(SUFFIXES):
            yield from _archive_members(file)
        else:
            inside = PurePosixPath(file.relative_to(path).as_posix())
            yield Member(file, inside, file.stat().st_size, cast("Opener", partial(file.open, "rb")))


def _archive_members(path: Path) -> Iterator[Member]:
    for entry in _bounded(path, _entries(path)):
        inside = _inside(path, entry.name)
        if entry.kind == "other":
            raise DataError(f"{path}: {entry.name} is a link or device, refused; pack plain files")
        if entry.kind == "file" and not any(map(_is_hidden, inside.parts)):
            yield Member(path, inside, entry.size, entry.opener)


def _entries(path: Path) -> Iterator[_Entry]:
    head = b""
    if path.is_file():
        with path.open("rb") as file:
            head = file.read(1024)
    if is_html(head):
        raise DataError(
            f"{path}: an HTML page, not an archive; the host refused the download: get the file anew"
        )
    if head.startswith(b"PK") and _is_zip(path):
        return _zip_entries(path)
    if head and _is_tar(path):
        return _tar_entries(path)
    raise DataError(
        f"{path}: neither a folder nor a tar or zip archive, or one cut short; check data.archive"
    )


def _is_zip(path: Path) -> bool:
    with _said(path):
        return zipfile.is_zipfile(path)


def _is_tar(path: Path) -> bool:
    with _said(path):
        try:
            tarfile.open(path, tarinfo=_Header).close()
        except tarfile.TarError:
            return False
    return True


def _tar_entries(path: Path) -> Iterator[_Entry]:
    with _said(path), tarfile.open(path, tarinfo=_Header) as tar:
        while (entry := tar.next()) is not None:
            is_file = entry.isreg() and not entry.issparse()  # a sparse file is a few bytes that claim many
            kind: Literal["file", "folder", "other"] = "file" if is_file else "other"
            opener = cast("Opener", partial(tar.extractfile, entry))
            yield _Entry(entry.name, "folder" if entry.isdir() else kind, entry.size, opener)
            tar.members = []  # type: ignore[attr-defined]  # else all headers stay in memory
        _expect_end(tar)


def _expect_end(tar: tarfile.TarFile) -> None:
    """Raise `tarfile.ReadError` where the end mark is missing: at a damaged header tarfile just stops.

    What follows is read over, for the checksum at the end of a packed one.
    """
    file = cast("IO[bytes]", tar.fileobj)
    file.seek(tar.offset)
    if any(file.read(_TAR_BLOCK) or b"?"):
        raise tarfile.ReadError("no end mark")
    if not any(not file.read(_MAX_HEADER) for _ in range(_BEHIND_THE_END)):
        raise tarfile.ReadError("goes on behind its end")


def _zip_entries(path: Path) -> Iterator[_Entry]:
    with _said(path), zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            is_file = (entry.external_attr >> 16) & 0o170000 in {0, 0o100000}
            kind: Literal["file", "folder", "other"] = "file" if is_file else "other"
            opener = partial(archive.open, entry)
            yield _Entry(entry.filename, "folder" if entry.is_dir() else kind, entry.file_size, opener)


def _inside(path: Path, name: str) -> PurePosixPath:
    """Return the name of a member as a path, refusing one that leads out of the archive."""
    inside = PurePosixPath(name.replace("\\", "/"))
    if inside.is_absolute() or ".." in inside.parts:
        raise DataError(f"{path}: {name} leads out of the archive, refused; get the archive elsewhere")
    return inside


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _bounded(path: Path, found: Iterable[_Entry]) -> Iterator[_Entry]:
    """Pass on `found` until it claims more files or bytes than any data set holds."""
    size, packed = 0, path.stat().st_size
    for count, entry in enumerate(found, start=1):
        size += entry.size
        if count > MAX_FILES or size > MAX_BYTES:
            allowed = f"{MAX_FILES:,} files and {MAX_BYTES // 2**30} GiB"
            raise DataError(f"{path}: holds more than {allowed}, refused; get the archive elsewhere")
        if size > max(MAX_FILE_BYTES, MAX_RATIO * packed):
            raise DataError(
                f"{path}: {packed:,} bytes that claim to hold over {size:,}, refused as a bomb; "
                "get the archive elsewhere"
            )
        yield entry


def _told_apart(path: Path, found: Iterable[Member]) -> Iterator[Member]:
    """Pass on `found` as long as files and folders have names that no file system takes for one."""
    names: dict[str, str] = {}
    for member in found:
        for part in (member.path, *member.path.parents):
            name = str(part)
            known = names.setdefault(_folded(name), name)
            if known != name:
                raise DataError(
                    f"{path}: {known} and {name} differ by case or Unicode form alone, refused; rename one"
                )
        yield member


def _folded(name: str) -> str:
    """What `name` is on file systems that tell neither case nor Unicode form."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


@contextmanager
def _said(path: Path) -> Iterator[None]:
    """Turn what the archive modules raise on damaged input, almost anything, into one line."""
    try:
        yield
    except (ParashotError, MemoryError):
        raise
    except RuntimeError as error:  # zipfile's word for an encrypted member
        raise DataError(f"{path}: cannot be read ({error}); unpack it and give the folder") from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in {None, errno.EINVAL}:  # no offset can be
            raise
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{path}: damaged or cut short ({reason}); get it again") from error
