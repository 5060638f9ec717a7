"""Files of a folder, tar or zip, one after another; nothing is extracted.

Names that lead out of the archive, links and devices are refused, as by tarfile's data filter.
"""

from __future__ import annotations

import os
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, cast

from parashot.errors import DataError, ParashotError

MAX_BYTES = 256 * 2**30
"""Limit of all files of one archive together."""

MAX_FILE_BYTES = 256 * 2**20
"""Limit of one file that is read into memory."""

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")

Opener = Callable[[], IO[bytes]]


@dataclass(frozen=True)
class Member:
    """One file of the folder or archive `archive`, readable until the next one is asked for."""

    archive: Path
    path: PurePosixPath
    size: int
    opener: Opener

    @property
    def name(self) -> str:
        """Path inside the folder or archive."""
        return str(self.path)

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open the file for reading. Raises `DataError` where the archive is damaged."""
        with _damage_named(self.archive), self.opener() as file:
            yield file

    def read(self) -> bytes:
        """Return the whole content. Raises `DataError` above `MAX_FILE_BYTES`."""
        if self.size > MAX_FILE_BYTES:
            raise DataError(f"{self.name}: {self.size} bytes, more than an image can have; remove it")
        with self.open() as file:
            return file.read()


def members(path: Path, nested: bool = False) -> Iterator[Member]:
    """Yield the regular files of the folder or archive `path`, hidden ones left out.

    With `nested`, archives that lie in a folder are opened too. Raises `DataError` where `path` is neither a
    folder nor an archive, or where an archive is damaged, unsafe or above `MAX_BYTES`.
    """
    if not path.is_dir():
        yield from _archive_members(path)
        return
    for file in folder_files(path):
        if nested and file.name.lower().endswith(SUFFIXES):
            yield from _archive_members(file)
        else:
            inside = PurePosixPath(file.relative_to(path).as_posix())
            yield Member(path, inside, file.stat().st_size, cast("Opener", partial(file.open, "rb")))


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
    """Tell a web page by its first bytes: hosts send one in place of a file that they refuse or lack."""
    start = head[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return start.startswith((b"<!doctype html", b"<html", b"<head", b"<body", b"<script", b"<?xml"))


def _archive_members(path: Path) -> Iterator[Member]:
    total = 0
    with _damage_named(path):
        for member, is_regular in _entries(path):
            if member.path.is_absolute() or ".." in member.path.parts:
                raise DataError(f"{path}: {member.name} leads out of the archive; get the archive elsewhere")
            if not is_regular:
                raise DataError(f"{path}: {member.name} is a link or device; pack plain files")
            total += member.size
            if total > MAX_BYTES:
                limit = f"{MAX_BYTES // 2**30} GiB"
                raise DataError(f"{path}: holds more than {limit}; get the archive elsewhere")
            if not any(map(_is_hidden, member.path.parts)):
                yield member


def _entries(path: Path) -> Iterator[tuple[Member, bool]]:
    """Yield every entry that is no folder, unchecked, and whether it is a regular file."""
    with path.open("rb") as file:
        head = file.read(1024)
    if is_html(head):
        raise DataError(f"{path}: an HTML page, not an archive; the host refused the download: get it again")
    if head.startswith(b"PK"):
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if not info.is_dir():
                    is_regular = stat.S_IFMT(info.external_attr >> 16) in {0, stat.S_IFREG}
                    inside = PurePosixPath(info.filename.replace("\\", "/"))
                    yield Member(path, inside, info.file_size, partial(archive.open, info)), is_regular
    else:
        try:
            tarfile.open(path).close()
        except tarfile.TarError as error:
            what = "neither a folder nor a tar or zip archive, or one cut short"
            raise DataError(f"{path}: {what}; check data.archive") from error
        with tarfile.open(path) as tar:
            yield from _tar_entries(path, tar)


def _tar_entries(path: Path, tar: tarfile.TarFile) -> Iterator[tuple[Member, bool]]:
    while (entry := tar.next()) is not None:
        if not entry.isdir():
            opener = cast("Opener", partial(tar.extractfile, entry))
            yield Member(path, PurePosixPath(entry.name), entry.size, opener), entry.isreg()
        tar.members = []  # type: ignore[attr-defined]  # else all headers stay in memory
    # at a damaged header tarfile stops without a word: only the end mark, a block of zeros, tells
    file = cast("IO[bytes]", tar.fileobj)
    file.seek(tar.offset)
    if any(file.read(tarfile.BLOCKSIZE) or b"?"):
        raise tarfile.ReadError("no end mark")


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    """Turn what the archive modules raise on damaged input, almost anything, into one line."""
    try:
        yield
    except RuntimeError as error:  # an encrypted or unknown kind of member of a zip
        raise DataError(f"{path}: cannot be read ({error}); unpack it and give the folder") from error
    except Exception as error:
        is_of_disk = isinstance(error, OSError) and error.errno is not None
        if isinstance(error, ParashotError | MemoryError) or is_of_disk:
            raise
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{path}: damaged or cut short ({reason}); get it again") from error
