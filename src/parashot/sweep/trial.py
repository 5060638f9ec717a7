"""One training of a sweep on a node: from its task to the files of its result folder.

The packed data travel with it: nodes need not share a disk with the machine that sends them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from parashot.data.manifest import MANIFEST, sha256
from parashot.errors import DataError, DeviceError, described
from parashot.files import replacing_folder
from parashot.hardware import inspect_hardware
from parashot.knobs import flatten
from parashot.records import Provenance, read_runs, write_runs
from parashot.sweep.grid import Point
from parashot.tasks.relation import RelationTask
from parashot.train.job import episode_job
from parashot.train.run import train

_STUDIES = ("batchsz_study", "warmup_study", "seeds_study")
_BESIDE = (*_STUDIES, "claims", "tracking", "loader.bench", "parallel.bench")
"""Sections of params.yaml that no single training depends on."""

Files = dict[str, bytes]
"""A result folder: its files by name."""


@dataclass(frozen=True)
class Delivery:
    """Place of the packed data on the machine that sent them, and how to get each file elsewhere."""

    path: Path
    checksum: str  # of the manifest, which holds that of every file
    files: Any = None  # what `share` made of their contents by name

    def is_at(self, packed: Path) -> bool:
        """Whether these data are in the folder `packed`."""
        return (packed / MANIFEST).is_file() and sha256(packed / MANIFEST) == self.checksum


def send(packed: Path, share: Callable[[Any], Any] | None) -> Delivery:
    """Make the packed folder ready for other machines; without `share`, there are none."""
    files = None
    if share is not None:
        files = share({file.name: np.fromfile(file, np.uint8) for file in packed.iterdir()})
    return Delivery(packed.resolve(), sha256(packed / MANIFEST), files)


def receive(delivery: Delivery, folder: Path, fetch: Callable[[Any], Any]) -> Path:
    """Return a packed folder on this machine: the sender's own where it is seen here, else one in `folder`.

    Files are written once per machine, however many runs need them. Raises `DataError`.
    """
    if delivery.is_at(delivery.path):
        return delivery.path
    if delivery.files is None:
        raise DataError(f"{delivery.path}: gone or changed since the sweep began; start it again")
    here = folder / delivery.checksum[:24]
    with here.with_suffix(".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not delivery.is_at(here):
            with replacing_folder(here) as unpacked:
                for name, content in fetch(delivery.files).items():
                    (unpacked / name).write_bytes(content.data)
    return here


@dataclass(frozen=True)
class Trial:
    """One run of a sweep. `validation_seed` is the same for all runs, so that accuracies can be paired."""

    point: Point
    strategy: str
    validation_seed: int
    data: Delivery
    cpus: int
    code: str  # names the code that trains

    @property
    def settings(self) -> dict[str, str]:
        """Params that the training depends on, by dotted key."""
        params = self.point.params
        others = (f"parallel.{each}" for each in params.parallel.strategies if each != self.strategy)
        beside = tuple(f"{section}." for section in (*_BESIDE, *others))
        return {key: value for key, value in flatten(params).items() if not key.startswith(beside)}

    @property
    def key(self) -> str:
        """Name of its folder, made of all that its result depends on."""
        identity = [self.strategy, self.settings, self.validation_seed, self.data.checksum, self.code]
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def attempt(trial: Trial, write: Callable[[Files], object], fetch: Callable[[Any], Any]) -> str:
    """Train, and hand the result folder to `write`; return why there is none, empty where there is one."""
    try:
        write(_trained(trial, fetch))
    except Exception as error:
        return described(error)
    return ""


def write_files(folder: Path, files: Files) -> None:
    """Write a result folder, whole or not at all."""
    with replacing_folder(folder) as new:
        for name, data in files.items():
            (new / name).write_bytes(data)


def _trained(trial: Trial, fetch: Callable[[Any], Any]) -> Files:
    """Train and return the result folder. Raises `DeviceError` where the training cannot run here."""
    shelf = Path(tempfile.gettempdir(), f"parashot-sweep-{os.getuid()}")
    shelf.mkdir(mode=0o700, exist_ok=True)
    packed, params, name = receive(trial.data, shelf, fetch), trial.point.params, trial.point.name
    tags = {"sweep": name, "host": platform.node(), "hardware": str(inspect_hardware()), "code": trial.code}
    with own_cores(shelf, trial.cpus), tempfile.TemporaryDirectory(prefix="run-", dir=shelf) as folder:
        out = Path(folder, "out")
        job = episode_job(trial.strategy, params, packed, out, Provenance(trial.settings, tags))
        task = RelationTask(params, packed, validation_seed=trial.validation_seed)
        result = train(replace(job, task=task))
        if result is None or result.status != "ok":
            raise DeviceError(result.reason if result else "no result")
        # A training by itself knows only its strategy; in a sweep, the knobs tell runs apart.
        runs = [replace(run, name=name, stage="sweep") for run in read_runs(out / "records.jsonl")]
        write_runs(out / "records.jsonl", runs)
        return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


@contextmanager
def own_cores(folder: Path, count: int) -> Iterator[None]:
    """Keep this process on `count` hardware threads, free ones before those that another run holds.

    Ray counts cores but hands out none: several runs would start threads on all of them, and how many threads
    add up a sum, which shows in its last bits, would depend on the node. A run that is killed lets go.
    """
    allowed = sorted(os.sched_getaffinity(0))
    with ExitStack() as locks:
        free: list[int] = []
        for core in allowed:
            if len(free) == count:
                break
            file = locks.enter_context((folder / f"cpu{core}.lock").open("wb"))
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                free.append(core)
        taken = [core for core in allowed if core not in free]
        os.sched_setaffinity(0, [*free, *taken][:count])
        try:
            yield
        finally:
            os.sched_setaffinity(0, allowed)
