"""What a node does for a sweep: one training, from its task to the bytes of its result folder."""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from parashot.errors import DeviceError, ParashotError, one_line
from parashot.hardware import inspect_hardware
from parashot.params import Params
from parashot.records import read_runs, write_runs
from parashot.sweep.cores import own_cores
from parashot.sweep.delivery import Delivery, receive
from parashot.sweep.engine import Failure, fetch
from parashot.train.job import Job
from parashot.train.run import train

RECORDS = "records.jsonl"

_TRAINING = ("data", "model", "parallel", "train", "hardware.py", "params.py", "records.py")
"""The parts of parashot that a training's result depends on."""

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
    code: str  # `code_digest` of the machine that asks


def run_task(task: Task) -> Files | Failure:
    """Train, and hand back the result folder; a run that fails says why and harms no other."""
    try:
        return _trained(task)
    except (ParashotError, OSError) as error:
        return Failure(one_line(error))
    except Exception as error:
        return Failure(f"{type(error).__name__}: {one_line(error)}")


def code_digest() -> str:
    """A name for the code that trains, as it is on this machine: all runs of a sweep are to be of one."""
    package = Path(__file__).parents[1]
    files = [file for part in _TRAINING for file in [package / part, *(package / part).rglob("*.py")]]
    digest = hashlib.sha256()
    for file in sorted(file for file in files if file.is_file()):
        digest.update(f"{file.relative_to(package).as_posix()}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _trained(task: Task) -> Files | Failure:
    if code_digest() != task.code:
        raise DeviceError(
            f"{platform.node()} has another version of parashot than the machine that runs the sweep; "
            "install the same there"
        )
    shelf = node_folder()
    packed = receive(task.data, shelf, fetch)
    with own_cores(shelf, task.cpus), tempfile.TemporaryDirectory(prefix="run-", dir=shelf) as folder:
        out = Path(folder, "out")
        result = train(Job(task.strategy, task.params, packed, out, _tags(task)))
        if result is None or result.status != "ok":
            return Failure(result.reason if result else "no result")
        _name_run(out / RECORDS, task.name)
        return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


def node_folder() -> Path:
    """What sweeps keep on this machine: the packed data, runs under way, and who has which core."""
    folder = Path(tempfile.gettempdir(), f"parashot-sweep-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise DeviceError(f"{folder}: belongs to someone else; remove it, or set TMPDIR to another folder")
    return folder


def _tags(task: Task) -> dict[str, str]:
    machine = inspect_hardware()
    return {
        "sweep": task.name,
        "host": platform.node(),
        "hardware": f"{machine.cpu_model}, {machine.threads} threads; {', '.join(machine.gpus) or 'no GPU'}",
        "code": task.code,
    }


def _name_run(records: Path, name: str) -> None:
    """Tell the runs of a sweep apart: a training by itself knows only its strategy."""
    write_runs(records, [replace(run, name=name, stage="sweep") for run in read_runs(records)])
