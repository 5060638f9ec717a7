"""Memory, descriptors, threads, processes and files that a tree of processes holds, seen from outside.

Memory is what has no file behind it (PSS of private and of shared pages, and what is swapped out): pages of
mapped files and of libraries come and go with whoever else on the machine uses them. Files in shared memory
are told by inode: glibc maps a semaphore by another name than the one it then gives it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from parashot.errors import DeviceError

_HELD = ("Pss_Anon:", "Pss_Shmem:", "SwapPss:")
"""Lines of /proc/PID/smaps_rollup, in kB."""

_SHARED = "/dev/shm"


@dataclass(frozen=True)
class Footprint:
    """One look at a tree of processes."""

    memory_mb: float
    descriptors: int
    threads: int
    processes: int
    shared_files: int
    temporary_files: int


QUANTITIES = {
    "memory_mb": "memory (MB)",
    "descriptors": "open descriptors",
    "threads": "threads",
    "processes": "processes",
    "shared_files": "files in /dev/shm",
    "temporary_files": "temporary files",
}
"""Fields of a `Footprint` in words."""


class Tree:
    """A process with all its descendants, and the folder they keep temporary files in."""

    def __init__(self, pid: int, temporary: Path) -> None:
        """Raises `DeviceError` where the kernel does not tell a process's memory."""
        if "Pss_Anon:" not in _text(Path("/proc/self/smaps_rollup")):
            raise DeviceError("this kernel has no Pss_Anon in /proc/PID/smaps_rollup; Linux 5.9 or later has")
        self._root, self._temporary = psutil.Process(pid), temporary
        self._seen: set[psutil.Process] = set()
        self._shared: set[int] = set()

    def look(self) -> Footprint:
        """Footprint now, orphans included, and files in shared memory that are left of ended processes."""
        with suppress(psutil.NoSuchProcess):
            self._seen |= {self._root, *self._root.children(recursive=True)}
        self._seen = {each for each in self._seen if _is_alive(each)}
        held = {inode for each in self._seen for inode in _shared_inodes(each.pid)}
        self._shared = held | (self._shared & {entry.inode() for entry in os.scandir(_SHARED)})
        return Footprint(
            memory_mb=sum(_memory_bytes(each.pid) for each in self._seen) / 1e6,
            descriptors=sum(_or_zero(each.num_fds) for each in self._seen),
            threads=sum(_or_zero(each.num_threads) for each in self._seen),
            processes=len(self._seen),
            shared_files=len(self._shared),
            temporary_files=sum(1 for _ in self._temporary.rglob("*")),
        )


def _is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _or_zero(count: Callable[[], int]) -> int:
    with suppress(psutil.Error):
        return count()
    return 0


def _memory_bytes(pid: int) -> int:
    lines = _text(Path(f"/proc/{pid}/smaps_rollup")).splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(_HELD))


def _shared_inodes(pid: int) -> set[int]:
    """Inodes in /dev/shm that a process has mapped or open; none of one that has ended."""
    maps = _text(Path(f"/proc/{pid}/maps")).splitlines()
    held = {int(line.split(maxsplit=5)[4]) for line in maps if f" {_SHARED}/" in line}
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if descriptor.readlink().is_relative_to(_SHARED):
                    held.add(descriptor.stat().st_ino)
    return held


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # the process has ended
        return ""
