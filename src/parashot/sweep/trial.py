"""One training of a sweep on a node: from its task to the files of its result folder."""

from __future__ import annotations

import fcntl
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from parashot.errors import DeviceError, ParashotError, one_line
from parashot.files import replacing_folder
from parashot.hardware import inspect_hardware
from parashot.params import Params
from parashot.records import read_runs, write_runs
from parashot.sweep.delivery import Delivery, receive
from parashot.train.job import Job
from parashot.train.run import train

RECORDS = "records.jsonl"

Files = dict[str, bytes]
"""A result folder: its files by name."""


@dataclass(frozen=True)
class Task:
    """One run of a sweep."""

    name: str
    strategy: str
    params: Params
    data: Delivery
    cpus: int
    code: str  # names the code that trains


def attempt(task: Task, write: Callable[[Files], object], fetch: Callable[[Any], Any]) -> str:
    """Train, and hand the result folder to `write`; return why there is none, empty where there is one."""
    try:
        write(_trained(task, fetch))
    except (ParashotError, OSError) as error:
        return one_line(error)
    except Exception as error:
        return f"{type(error).__name__}: {one_line(error)}"
    return ""


def write_files(folder: Path, files: Files) -> None:
    """Write a result folder, whole or not at all."""
    with replacing_folder(folder) as new:
        for name, data in files.items():
            (new / name).write_bytes(data)


def _trained(task: Task, fetch: Callable[[Any], Any]) -> Files:
    """Train and return the result folder. Raises `DeviceError` where the training cannot run here."""
    shelf = Path(tempfile.gettempdir(), f"parashot-sweep-{os.getuid()}")
    shelf.mkdir(mode=0o700, exist_ok=True)
    packed = receive(task.data, shelf, fetch)
    machine = inspect_hardware()
    tags = {
        "sweep": task.name,
        "host": platform.node(),
        "hardware": f"{machine.cpu_model}, {machine.threads} threads; {', '.join(machine.gpus) or 'no GPU'}",
        "code": task.code,
    }
    with own_cores(shelf, task.cpus), tempfile.TemporaryDirectory(prefix="run-", dir=shelf) as folder:
        out = Path(folder, "out")
        result = train(Job(task.strategy, task.params, packed, out, tags))
        if result is None or result.status != "ok":
            raise DeviceError(result.reason if result else "no result")
        # A training by itself knows only its strategy; in a sweep, the knobs tell runs apart.
        runs = [replace(run, name=task.name, stage="sweep") for run in read_runs(out / RECORDS)]
        write_runs(out / RECORDS, runs)
        return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


@contextmanager
def own_cores(folder: Path, count: int) -> Iterator[None]:
    """Keep this process on `count` hardware threads, free ones before those that another run holds.

    Ray counts cores but hands out none: several runs would start threads on all of them, and how many threads
    add up a sum, which shows in its last bits, would depend on the node. A run that is killed lets go.
    """
    if not hasattr(os, "sched_setaffinity"):  # a system that keeps no process to some cores
        yield
        return
    allowed = sorted(os.sched_getaffinity(0))
    with ExitStack() as locks:
        free: list[int] = []
        for core in allowed:
            file = locks.enter_context((folder / f"cpu{core}.lock").open("wb"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            free.append(core)
            if len(free) == count:
                break
        taken = [core for core in allowed if core not in free]
        os.sched_setaffinity(0, [*free, *taken][:count])
        try:
            yield
        finally:
            os.sched_setaffinity(0, allowed)
