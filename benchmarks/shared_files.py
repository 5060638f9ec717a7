"""Files in shared memory that a tree of processes holds or has left, on a machine that others use as well.

They are told apart by inode: glibc maps a semaphore by another name than the one it then gives it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

_FOLDER = "/dev/shm"


class SharedFiles:
    """Counts the files in /dev/shm of a tree of processes."""

    def __init__(self) -> None:
        self._own: set[int] = set()

    def count(self, pids: Collection[int]) -> int:
        """Files that one of `pids` has open or mapped, named or not, or had, and that are there still."""
        held = {inode for pid in pids for inode in _held(pid)}
        self._own = held | (self._own & _named())
        return len(self._own)


def _named() -> set[int]:
    """What is there under a name, whosever it is."""
    with suppress(FileNotFoundError):
        return {entry.inode() for entry in os.scandir(_FOLDER)}
    return set()


def _held(pid: int) -> set[int]:
    """What a process has open or mapped there; nothing of one that has ended."""
    held: set[int] = set()
    with suppress(OSError):
        held |= set(_mapped(pid))
    with suppress(OSError):
        held |= set(_open(pid))
    return held


def _mapped(pid: int) -> Iterator[int]:
    for line in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        if f" {_FOLDER}/" in line:
            yield int(line.split(maxsplit=5)[4])


def _open(pid: int) -> Iterator[int]:
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            if descriptor.readlink().is_relative_to(_FOLDER):
                yield descriptor.stat().st_ino
