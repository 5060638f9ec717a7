"""Atomic and durable outputs: a reader sees the old file or the new one, never half of either.

What is written lies beside its place as `.NAME.PID.tmp` until it is whole and on the disk. What a killed
writer left behind, the next writer of the same output removes.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil


def from_folder(folder: Path, named: str) -> Path:
    """Path that a user has `named`, relative to `folder`; `~` is his home."""
    return folder / os.path.expanduser(named)  # noqa: PTH111  pathlib's fails for a user that is not known


@contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; the file written there takes `path`'s place on success.

    The new file is a new inode: what DVC linked from its cache is never written into. Raises `OSError` that
    names `path`, for example where the disk is full.
    """
    with temporary_beside(path) as temporary:
        yield temporary
        _fsync(temporary)
        temporary.replace(path)
        _fsync(path.parent)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder beside `path`, which takes `path`'s place on success.

    Where a folder is there already, it is moved aside first, so `path` is missing for a moment.
    """
    with temporary_beside(path) as temporary:
        temporary.mkdir()
        yield temporary
        for inner in [*temporary.rglob("*"), temporary]:
            if not inner.is_symlink():
                _fsync(inner)
        aside = temporary.with_suffix(".old")
        if path.is_dir():
            path.replace(aside)
        temporary.replace(path)
        _fsync(path.parent)
        _remove(aside)


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8, atomically."""
    with replacing_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def temporary_beside(path: Path) -> Iterator[Path]:
    """Yield an unused path beside `path`, removed at the end; the disk's errors name `path` instead."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(path)
        yield temporary
    except OSError as error:
        _name(error, path, temporary)
        raise
    except RuntimeError as error:
        cause = error.__context__  # torch.save hides the disk's error behind its own
        if not isinstance(cause, OSError):
            raise
        _name(cause, path, temporary)
        raise cause from None
    finally:
        _remove(temporary)


def _name(error: OSError, path: Path, temporary: Path) -> None:
    """Let `error` name `path` where it names the temporary, or says of no file that the disk failed."""
    if error.filename is None and error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}:
        error.filename = str(path)
    elif str(error.filename).startswith(str(temporary)):
        error.filename, error.filename2 = str(path), None


def _remove_abandoned(path: Path) -> None:
    """Remove what earlier writers of `path` left whose processes have ended.

    Also under the PID of this one: in containers the same PIDs come again.
    """
    start = f".{path.name}."
    for each in path.parent.iterdir():
        pid, _, end = each.name.removeprefix(start).partition(".")
        is_ours = each.name.startswith(start) and pid.isdecimal() and end in {"tmp", "old"}
        if is_ours and (int(pid) == os.getpid() or not psutil.pid_exists(int(pid))):
            _remove(each)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
