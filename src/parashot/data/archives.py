"""The files of a folder, tar or zip, one after another, without extracting anything.

Nothing is written, so no name in an archive can become a path. Names that would lead out of it, links and
devices are refused all the same, as tarfile's data filter does, and so is an archive that claims more than
any set holds.
"""

from __future__ import annotations

import gzip
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, cast

from parashot.errors import DataError
from parashot.plain import printable

MAX_FILES = 5_000_000
MAX_BYTES = 256 * 2**30
MAX_FILE_BYTES = 256 * 2**20
"""Bounds of one archive, and of one file that is read at once: beyond them it is taken for a bomb."""

Opener = Callable[[], IO[bytes]]

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")

_DAMAGED = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError)
_TAR_BLOCK = 512


@dataclass(frozen=True)
class Member:
    """One file; it can be read until the next one is asked for."""

    archive: Path
    path: PurePosixPath
    size: int
    opener: Opener

    @property
    def name(self) -> str:
        """Its path inside the folder or archive, fit for a message."""
        return printable(str(self.path))

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
            return file.read()


def members(path: Path, nested: bool = False) -> Iterator[Member]:
    """Yield the regular files of the folder or archive `path`, hidden ones left out.

    With `nested`, archives that lie in a folder are opened too. Raises `DataError` where `path` is neither a
    folder nor an archive, and where an archive is damaged or hostile.
    """
    if not path.is_dir():
        yield from _archive_members(path)
        return
    for file in folder_files(path):
        if nested and file.name.lower().endswith(SUFFIXES):
            yield from _archive_members(file)
        else:
            inside = PurePosixPath(file.relative_to(path).as_posix())
            yield Member(file, inside, file.stat().st_size, cast("Opener", partial(file.open, "rb")))


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


def _archive_members(path: Path) -> Iterator[Member]:
    with path.open("rb") as file:
        head = file.read(1024)
    if is_html(head):
        raise DataError(
            f"{path}: an HTML page, not an archive; the host refused the download: get the file anew"
        )
    if zipfile.is_zipfile(path):
        yield from _bounded(path, _zip_members(path))
    elif _is_tar(path):
        yield from _bounded(path, _tar_members(path))
    else:
        raise DataError(
            f"{path}: neither a folder nor a tar or zip archive, or one cut short; check data.archive"
        )


def _is_tar(path: Path) -> bool:
    with _said(path):
        return tarfile.is_tarfile(path)


def _tar_members(path: Path) -> Iterator[Member]:
    with _said(path), tarfile.open(path) as tar:
        for entry in tar:
            inside = _inside(path, entry.name)
            if entry.isdir():
                continue
            if not entry.isreg():
                raise DataError(
                    f"{path}: {printable(entry.name)} is a link or device, refused; pack plain files"
                )
            if not any(map(_is_hidden, inside.parts)):
                yield Member(path, inside, entry.size, cast("Opener", partial(tar.extractfile, entry)))
        _expect_end(tar)


def _expect_end(tar: tarfile.TarFile) -> None:
    """Raise `tarfile.ReadError` where the end mark is missing: at a damaged header tarfile just stops."""
    file = cast("IO[bytes]", tar.fileobj)
    file.seek(tar.offset)
    if any(file.read(_TAR_BLOCK) or b"?"):
        raise tarfile.ReadError("no end mark")


def _zip_members(path: Path) -> Iterator[Member]:
    with _said(path), zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            inside = _inside(path, entry.filename)
            if entry.is_dir():
                continue
            if (entry.external_attr >> 16) & 0o170000 not in {0, 0o100000}:
                raise DataError(
                    f"{path}: {printable(entry.filename)} is a link or device, refused; pack plain files"
                )
            if not any(map(_is_hidden, inside.parts)):
                yield Member(path, inside, entry.file_size, partial(archive.open, entry))


def _inside(path: Path, name: str) -> PurePosixPath:
    """Return the name of a member as a path, refusing one that leads out of the archive."""
    inside = PurePosixPath(name.replace("\\", "/"))
    if inside.is_absolute() or ".." in inside.parts:
        raise DataError(
            f"{path}: {printable(name)} leads out of the archive, refused; get the archive elsewhere"
        )
    return inside


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _bounded(path: Path, found: Iterator[Member]) -> Iterator[Member]:
    """Pass on `found` until it claims more files or bytes than any data set holds."""
    size = 0
    for count, member in enumerate(found, start=1):
        size += member.size
        if count > MAX_FILES or size > MAX_BYTES:
            allowed = f"{MAX_FILES:,} files and {MAX_BYTES // 2**30} GiB"
            raise DataError(f"{path}: holds more than {allowed}, refused; get the archive elsewhere")
        yield member


@contextmanager
def _said(path: Path) -> Iterator[None]:
    """Turn what the archive modules raise on damaged input into one line."""
    try:
        yield
    except _DAMAGED as error:
        raise DataError(
            f"{path}: damaged or cut short ({' '.join(str(error).split())}); get it again"
        ) from error
    except RuntimeError as error:  # zipfile's word for an encrypted member
        raise DataError(f"{path}: cannot be read ({error}); unpack it and give the folder") from error
