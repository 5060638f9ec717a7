"""Atomic and durable outputs: a reader sees the old file or the new one, never half of either.

What is written lies beside its place as `.NAME.PID.tmp` until it is whole and on the disk, and is locked as
long as its writer lives. What a killed writer left behind, the next writer of the same output removes.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO}

_RENAME_EXCHANGE = 2
"""linux/fs.h"""
_AT_FDCWD = -100
"""fcntl.h: paths are relative to the working directory."""
_NO_EXCHANGE = {errno.ENOSYS, errno.EINVAL}
"""What a kernel or a file system says that cannot exchange two names."""


@contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """Yield an empty temporary file beside `path`. On success it takes `path`'s place, else it goes.

    A replaced file is a new inode: what DVC linked from its cache is never written into. Raises `OSError`
    naming `path` where the disk is full, the folder cannot be written to, or `path` is a folder.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    with _temporary(path, lambda temporary: temporary.touch(exist_ok=False)) as temporary:
        yield temporary
        _fsync(temporary)
        temporary.replace(path)
        _fsync(path.parent)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Like `replacing_file` for a folder: all of it appears at once, or nothing."""
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    with _temporary(path, Path.mkdir) as temporary:
        yield temporary
        for inner in [*temporary.rglob("*"), temporary]:
            if not inner.is_symlink():
                _fsync(inner)
        _put(temporary, path)
        _fsync(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8, atomically."""
    with replacing_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


# --- temporaries --------------------------------------------------------------------------------------


@contextmanager
def _temporary(path: Path, make: Callable[[Path], object]) -> Iterator[Path]:
    """A new file or folder beside `path`, locked while this process lives; it goes when the block ends."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with _naming(path, temporary):
        _make_folder(path.parent)
        _sweep(path)
        lock = _made_and_locked(temporary, make)
        try:
            yield temporary
        finally:
            _remove(temporary)
            _unlock(lock)


def _made_and_locked(temporary: Path, make: Callable[[Path], object]) -> int:
    """What `_unlock` takes. Another writer may sweep between the making and the lock: then once more."""
    while True:
        make(temporary)
        with suppress(FileNotFoundError):
            lock = _lock(temporary)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock), temporary.stat()):
                    return lock
            _unlock(lock)


def _sweep(path: Path) -> None:
    """Remove what killed writers of `path` left. The old folder that one had put aside comes back.

    The kernel lets go of a lock when its process ends, however it does: who can lock has found a remnant.
    """
    name = re.compile(rf"\.{re.escape(path.name)}\.\d+\.(tmp|old)")
    for each in path.parent.iterdir():
        if name.fullmatch(each.name):
            with suppress(OSError), _abandoned(each):
                if each.suffix == ".old" and not path.exists():
                    each.replace(path)
                else:
                    _remove(each)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


@contextmanager
def _abandoned(path: Path) -> Iterator[None]:
    """Hold what no living process holds. Raises `OSError` where one does, or where there are no locks."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        _unlock(descriptor)


def _lock(path: Path) -> int:
    """Lock a file or folder; return what `_unlock` takes. Where a file system has no locks, go without."""
    descriptor = os.open(path, os.O_RDONLY)
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def _unlock(descriptor: int) -> None:
    """To close it is not enough: a child process that was forked meanwhile would go on holding the lock."""
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


# --- taking a place -----------------------------------------------------------------------------------


def _put(temporary: Path, path: Path) -> None:
    """Let the folder `temporary` be `path`; what was there may be left under the name of `temporary`."""
    if not path.exists():
        temporary.replace(path)
        return
    try:
        _exchange(temporary, path)
    except OSError as error:
        if error.errno not in _NO_EXCHANGE:
            raise
        _put_after_stepping_aside(temporary, path)


def _exchange(one: Path, other: Path) -> None:
    """Let two paths swap what they name, in one step. Raises `OSError`, also where that cannot be done."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(other))


def _put_after_stepping_aside(temporary: Path, path: Path) -> None:
    """In two steps, between which `path` is missing: for kernels and file systems that cannot exchange."""
    old = path.with_name(f".{path.name}.{os.getpid()}.old")
    lock = _lock(path)
    try:
        path.replace(old)
        try:
            temporary.replace(path)
        except OSError:
            old.replace(path)
            raise
        _remove(old)
    finally:
        _unlock(lock)


# --- disks --------------------------------------------------------------------------------------------


@contextmanager
def _naming(path: Path, temporary: Path) -> Iterator[None]:
    """Let errors of the disk name the output, where they name its temporary or nothing at all."""
    try:
        yield
    except OSError as error:
        raise _named(error, path, temporary) from error.__cause__
    except RuntimeError as error:
        # torch closes its file after a failed write, and then tells of that alone
        cause = error.__context__
        if isinstance(cause, OSError) and cause.errno in _FULL | _REFUSED:
            raise _named(cause, path, temporary) from None
        raise


def _named(error: OSError, path: Path, temporary: Path) -> OSError:
    named = str(error.filename or "")
    if not named and error.errno in _FULL | {errno.EIO}:
        error.filename = str(path)
    elif named.startswith(str(temporary)) and error.errno in _FULL | _REFUSED:
        error.filename, error.filename2 = named.replace(str(temporary), str(path), 1), None
    return error


def _make_folder(folder: Path) -> None:
    """Make it with all above it, each on the disk before what goes into it."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _fsync(folder.parent)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
