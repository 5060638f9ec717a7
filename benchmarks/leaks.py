"""Growth over work: memory, descriptors, threads, processes and files, over steps and loader restarts.

A whole training, with augmentation, validations and saved states, by `serial` and by `ddp` in two ranks with
a loader worker each; and a loader whose two workers are started again and again. All processes are looked at
from outside. A figure is the median of the last quarter of the looks less that of the second. A count grows
from half a one on; memory may grow a little, since a training records four numbers of each step. Memory is
what has no file behind it (PSS). *Left* is what all counts together are when the work has ended.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.checkout import ROOT, environment, scratch_folder
from benchmarks.leaks_work import DDP, PROGRAM, RESTARTS, SEEN, SERIAL, newest_step, prepare
from benchmarks.outcome import Outcome, Table
from parashot.errors import DeviceError

QUANTITIES = {
    "memory_mb": "memory (MB)",
    "descriptors": "open descriptors",
    "threads": "threads",
    "processes": "processes",
    "shared_files": "files in /dev/shm",
    "temporary_files": "temporary files",
}
"""What a look counts, in words."""

Look = Mapping[str, float]
"""One look at the processes, by the keys of `QUANTITIES`."""

_FULL = {"steps": 10_000, "restarts": 200}
_QUICK = {"steps": 200, "restarts": 12}
_POLL_SECONDS = 0.02
_SAVING_SECONDS = 0.05
"""Until a file that has its name is closed, and its folder too."""

_PATIENCE_SECONDS = 10.0
"""For what ends a moment after its parent has."""

_SHARED = "/dev/shm"


@dataclass(frozen=True)
class Work:
    """Work to watch, the unit it is counted in, and the memory that 1,000 units may add."""

    name: str
    title: str
    unit: str
    most_memory_mb: float


WORKS = (
    Work(SERIAL, "training, serial", "steps", most_memory_mb=1.0),
    Work(DDP, "training, ddp, 2 ranks", "steps", most_memory_mb=2.0),
    Work(RESTARTS, "loader, 2 workers", "restarts", most_memory_mb=20.0),
)


def run(quick: bool) -> Outcome:
    """Do and watch every work; `quick`: a little of each, too little to judge memory by."""
    counts = _QUICK if quick else _FULL
    others = [words for key, words in QUANTITIES.items() if key != "memory_mb"]
    columns = ("work", "memory (MB)", "at most", *others, "left", "verdict")
    rows, raw, short = [], {}, []
    for work in WORKS:
        title = f"{work.title}: {counts[work.unit]:,} {work.unit}"
        print(f"  {title}", file=sys.stderr)
        with scratch_folder() as folder:
            prepare(folder)
            command = [sys.executable, "-c", PROGRAM, str(folder), work.name, str(counts[work.unit])]
            seen = watch(command, folder)
        found = growths(work, seen)
        memory, *counted = found.values()
        left = sum(each.left for each in found.values())
        grown = [QUANTITIES[quantity] for quantity, each in found.items() if each.grows]
        more = [each.more for each in counted]
        rows.append([title, memory.more, memory.most, *more, left, ", ".join(grown) or "flat"])
        raw[work.name] = {"at": list(seen.at), **{each: seen.series(each) for each in QUANTITIES}}
        short += [f"{work.title}: {each}" for each in grown]
    tables = [Table("More in the last quarter than in the second", columns, rows)]
    return Outcome("leaks", tables, raw, {"quick": quick, "counts": counts, "short": [] if quick else short})


# --- growth ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """Looks after `at` units of work, and what was `left` when all was over."""

    left: Look
    at: Sequence[int]
    looks: Sequence[Look]

    def series(self, quantity: str) -> list[float]:
        """One quantity of all looks."""
        return [each[quantity] for each in self.looks]


@dataclass(frozen=True)
class Growth:
    """Of a quantity: more in the last quarter than in the second, the bound of that, and what is left."""

    more: float
    most: float
    left: float

    @property
    def grows(self) -> bool:
        """Whether there is more than may be, or anything left."""
        return self.more > self.most or self.left > 0


def growths(work: Work, seen: Seen) -> dict[str, Growth]:
    """Growth of each quantity, by the keys of `QUANTITIES`."""
    quarter = len(seen.at) // 4
    second, last = slice(quarter, 2 * quarter), slice(-quarter, None)
    distance = statistics.fmean(seen.at[last]) - statistics.fmean(seen.at[second])
    found = {}
    for quantity in QUANTITIES:
        values = seen.series(quantity)
        more = statistics.median(values[last]) - statistics.median(values[second])
        # of what is counted, one more is found
        most = work.most_memory_mb * distance / 1_000 if quantity == "memory_mb" else 0.5
        found[quantity] = Growth(more, most, seen.left[quantity])
    return found


# --- watching -------------------------------------------------------------------------------------------


def watch(command: Sequence[str], folder: Path) -> Seen:
    """Run `command` in the checkout and look at its processes whenever it has saved a step below `folder`.

    The number of the last step looked at is written to the file `SEEN` of `folder`. Raises `DeviceError`
    where the command fails.
    """
    at: list[int] = []
    looks: list[Look] = []
    # folders with short names: paths of sockets lie in them
    with tempfile.TemporaryDirectory(prefix="leaks-") as temporary, tempfile.TemporaryDirectory() as cache:
        folders = {"TMPDIR": temporary, "TORCHINDUCTOR_CACHE_DIR": cache}
        variables = {**environment(), **folders, "PARASHOT_MAX_RESTARTS": "0"}
        with subprocess.Popen(command, cwd=ROOT, env=variables, stdin=subprocess.DEVNULL) as process:
            tree = Tree(process.pid, Path(temporary))
            try:
                while process.poll() is None:
                    time.sleep(_POLL_SECONDS)
                    step = newest_step(folder)
                    if step > (at[-1] if at else 0):
                        time.sleep(_SAVING_SECONDS)
                        at.append(step)
                        looks.append(tree.look())
                        (folder / SEEN).write_text(str(step))
            except BaseException:
                process.terminate()
                raise
        if process.returncode:
            raise DeviceError(f"{' '.join(command)} ended with exit code {process.returncode}")
        end = time.monotonic() + _PATIENCE_SECONDS
        while any((left := tree.look()).values()) and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)
        return Seen(left, at, looks)


class Tree:
    """A process with all its descendants, and the folder they keep temporary files in."""

    def __init__(self, pid: int, temporary: Path) -> None:
        """Raises `DeviceError` where the kernel does not tell a process's memory."""
        if not any(_lines(os.getpid(), "smaps_rollup", "Pss_Anon:")):
            raise DeviceError("this kernel has no Pss_Anon in /proc/PID/smaps_rollup; Linux 5.9 or later has")
        self._root, self._temporary = psutil.Process(pid), temporary
        self._seen: set[psutil.Process] = set()
        self._shared: set[int] = set()

    def look(self) -> Look:
        """What all hold now, orphans included, and files in shared memory that are left of ended processes.

        Shared files are told by inode: glibc maps a semaphore by another name than the one it then gives it.
        """
        with suppress(psutil.NoSuchProcess):
            self._seen |= {self._root, *self._root.children(recursive=True)}
        look = dict.fromkeys(QUANTITIES, 0.0)
        mapped: set[int] = set()
        for process in tuple(self._seen):
            try:
                if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
                    raise psutil.NoSuchProcess(process.pid)
                look["descriptors"] += process.num_fds()
                look["threads"] += process.num_threads()
            except psutil.Error:
                self._seen.remove(process)
                continue
            held = _lines(process.pid, "smaps_rollup", "Pss_Anon:", "Pss_Shmem:", "SwapPss:")  # in kB
            look["memory_mb"] += sum(int(line.split()[1]) * 1024 for line in held) / 1e6
            maps = _lines(process.pid, "maps")
            mapped |= {int(line.split(maxsplit=5)[4]) for line in maps if f" {_SHARED}/" in line}
        self._shared = mapped | (self._shared & {entry.inode() for entry in os.scandir(_SHARED)})
        files = sum(1 for _ in self._temporary.rglob("*"))
        counts = {"processes": len(self._seen), "shared_files": len(self._shared), "temporary_files": files}
        return look | counts


def _lines(pid: int, name: str, *begins: str) -> Iterator[str]:
    """Lines of a process's file in /proc, of those that begin in one of some ways; none after its end."""
    try:
        text = Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    yield from (line for line in text.splitlines() if not begins or line.startswith(begins))
