"""A data set as a plain folder: tar and zip archives are unpacked, whatever their names end in."""

from __future__ import annotations

import errno
import os
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parashot.errors import DataError, one_line
from parashot.files import temporary_beside

MAX_BYTES = 256 * 2**30
"""Limit of all files of one archive together."""

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")
"""Names of archives that lie in a folder."""


@contextmanager
def unpacked(path: Path, scratch: Path, *, nested: bool = False) -> Iterator[Path]:
    """Yield a folder with the files of `path`: itself, or the archive, unpacked beside `scratch` meanwhile.

    With `nested`, archives that lie in a folder are unpacked too. A `DataError` of the block is raised again
    with `path` in front. Raises `DataError` where `path` is no archive, or one that is damaged, unsafe or
    above `MAX_BYTES`.
    """
    archives = [path]
    if path.is_dir():
        archives = [each for each in files_in(path) if nested and each.name.lower().endswith(SUFFIXES)]
    with temporary_beside(scratch) as place:  # its own: another process may unpack the same at this time
        for number, archive in enumerate(archives):
            _unpack(archive, place / str(number))
        if archives and path.is_dir():
            (place / "folder").symlink_to(path.resolve())
        try:
            yield place if archives else path
        except DataError as error:
            raise DataError(f"{path}: {error}") from error


def files_in(folder: Path) -> Iterator[Path]:
    """Yield the regular files under `folder`, sorted; hidden ones are left out, links are followed.

    Raises `DataError` where a folder cannot be read.
    """

    def refuse(error: OSError) -> None:  # os.walk by itself passes over what it cannot list
        raise DataError(f"{error.filename}: cannot be read ({error.strerror})") from error

    seen: set[str] = set()
    for root, folders, files in os.walk(folder, onerror=refuse, followlinks=True):
        real = os.path.realpath(root)
        if real in seen:  # a link back up
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
        paths = (Path(root, name) for name in sorted(files) if not _is_hidden(name))
        yield from (path for path in paths if path.is_file())


def _unpack(archive: Path, folder: Path) -> None:
    try:
        if tarfile.is_tarfile(archive):
            _unpack_tar(archive, folder)
        elif zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as file:
                _check_size(sum(entry.file_size for entry in file.infolist()))
                file.extractall(folder)  # names that lead out are changed to such that do not
        else:
            raise DataError("neither a folder nor a tar or zip archive, or cut short; give another copy")
    except DataError as error:
        raise DataError(f"{archive}: {error}") from error
    except Exception as error:  # on damaged input, the archive modules raise almost anything
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise
        advice = "get it again, or unpack it and give the folder"
        raise DataError(f"{archive}: cannot be unpacked ({one_line(error)}); {advice}") from error


def _unpack_tar(archive: Path, folder: Path) -> None:
    total = 0
    with tarfile.open(archive) as tar:
        for entry in tar:
            if not (entry.isreg() or entry.isdir()):
                raise DataError(f"{entry.name} is a link or device; pack plain files")
            total += entry.size
            _check_size(total)
            tar.extract(entry, folder, filter="data")
        # at a damaged header tarfile stops without a word: only the end mark, a block of zeros, tells
        assert tar.fileobj is not None
        tar.fileobj.seek(tar.offset)
        if any(tar.fileobj.read(tarfile.BLOCKSIZE) or b"?"):
            raise tarfile.ReadError("cut short: no end mark")


def _check_size(total: int) -> None:
    if total > MAX_BYTES:
        raise DataError(f"holds more than {MAX_BYTES // 2**30} GiB; get it elsewhere")


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"
