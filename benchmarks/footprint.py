"""What a tree of processes holds, looked at from outside: memory, descriptors, threads, files.

Memory is what has no file behind it (PSS of private and of shared pages, and what is swapped out): pages of
mapped files and of libraries come and go with whoever else on the machine uses them.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.shared_files import SharedFiles
from parashot.errors import DeviceError

_HELD = ("Pss_Anon:", "Pss_Shmem:", "SwapPss:")
"""Lines of /proc/PID/smaps_rollup, in kB."""


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
    """A process and all that come of it; `temporary` is the folder they keep temporary files in."""

    def __init__(self, pid: int, temporary: Path, shared: SharedFiles) -> None:
        """Raises `DeviceError` where the kernel does not tell a process's memory."""
        if "Pss_Anon:" not in _text(Path("/proc/self/smaps_rollup")):
            raise DeviceError("this kernel has no Pss_Anon in /proc/PID/smaps_rollup; Linux 5.9 or later has")
        self._root, self._temporary, self._shared = psutil.Process(pid), temporary, shared
        self._seen: set[psutil.Process] = set()

    def look(self) -> Footprint:
        """What the tree holds now, with those that have lost their parents."""
        with suppress(psutil.NoSuchProcess):
            self._seen |= {self._root, *self._root.children(recursive=True)}
        self._seen = {each for each in self._seen if _is_alive(each)}
        return self._of(self._seen)

    def _of(self, processes: set[psutil.Process]) -> Footprint:
        return Footprint(
            memory_mb=sum(map(_memory_bytes, processes)) / 1e6,
            descriptors=sum(map(_descriptors, processes)),
            threads=sum(map(_threads, processes)),
            processes=len(processes),
            shared_files=self._shared.count({each.pid for each in processes}),
            temporary_files=sum(1 for _ in self._temporary.rglob("*")),
        )


def _is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _memory_bytes(process: psutil.Process) -> int:
    lines = _text(Path(f"/proc/{process.pid}/smaps_rollup")).splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(_HELD))


def _descriptors(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(process.num_fds())
    return 0


def _threads(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(process.num_threads())
    return 0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:  # the process has ended
        return ""
