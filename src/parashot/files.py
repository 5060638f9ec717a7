"""Atomic outputs: a reader sees the old file or the new one, never half of either."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`. On success it is fsynced and takes `path`'s place, else it goes.

    A replaced file is a new inode: what DVC linked from its cache is never written into.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        _fsync(temporary)
        temporary.replace(path)
        _fsync(path.parent)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Like `replacing_file` for a folder: all of it appears at once, or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                _fsync(file)
        _swap(path, temporary)
        _fsync(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _swap(path: Path, temporary: Path) -> None:
    """Let `temporary` be `path`. A folder is not replaced in one step: the old one steps aside first."""
    old = path.with_name(f".{path.name}.{os.getpid()}.old")
    if path.exists():
        path.replace(old)
    try:
        temporary.replace(path)
    except OSError:
        if old.exists():
            old.replace(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8, atomically."""
    with replacing_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
