"""The work that is watched for leaks, as `python -c PROGRAM FOLDER WORK N`, in a process of its own.

A training of N steps saves its state `LOOKS` times: so it can be seen from outside how far it is. A loop of N
loader restarts leaves files of the same names, and goes on when the file `SEEN` says that it was looked at.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Literal

import torch

from benchmarks.images import photo
from benchmarks.workload import Workload, loader_batches, params_with, whole_training
from parashot.command import guarded
from parashot.data.episodes import EpisodeSpec
from parashot.data.images import encode_jpeg
from parashot.data.pack import pack
from parashot.data.packed import PackedSplit
from parashot.data.raw import ImageStream, RawImage, write_raw
from parashot.errors import DeviceError
from parashot.lifetime import end_in_order, end_with_parent
from parashot.recipes import Value

PROGRAM = "import sys; from benchmarks.leaks_work import main; sys.exit(main())"
"""Not `python -m`: every worker of a loader would import the main module again."""

LOOKS = 200
"""Number of looks at a training, unless it is short."""

SEEN = "seen"
SERIAL, DDP, RESTARTS = "serial", "ddp", "restarts"

_SIZE, _CLASSES, _IMAGES, _VAL_EPISODES = 16, {"train": 8, "val": 6, "test": 6}, 10, 20
_SPEC = EpisodeSpec(n_way=2, k_shot=1, k_query=1)
_BATCHSZ = 2
_SETTINGS: dict[str, Value] = {
    "episode.n_way": _SPEC.n_way,
    "episode.k_query": _SPEC.k_query,
    "evaluate.k_query": _SPEC.k_query,
    "evaluate.val_episodes": _VAL_EPISODES,
    "model.image_size": _SIZE,
    "train.batchsz": _BATCHSZ,
    "train.learning_rate": 1e-4,
    "train.precision": "fp32",
    "train.compile": "none",
    "train.val_episodes": _VAL_EPISODES,
    "augment.crop": 0.5,
    "augment.flip": True,
    "augment.jitter": 0.2,
    "loader.backend": "packed",
    "parallel.device": "cpu",
    "parallel.replicas": 2,
    "parallel.max_restarts": 0,
}
_LOADER_WORKERS = {SERIAL: 0, DDP: 2}
_LEAST_BETWEEN = 20
"""Steps from one look to the next."""

_RESTARTED_WORKERS, _STEPS, _READS = 2, 6, (6, 2)
"""A loader's workers, its batches, and how many of these are read: all, or some."""

_POLL_SECONDS, _PATIENCE_SECONDS = 0.005, 120.0


def main() -> int:
    """Do what the command line asks for, no longer than its parent lives; return the exit status."""
    end_in_order()
    end_with_parent()
    folder, work, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    if work == RESTARTS:
        return guarded(lambda: restart_loaders(folder, count))
    return guarded(lambda: run_training(folder, work, count))


def prepare(folder: Path) -> None:
    """Write the packed images that all work on."""
    names = [f"{number}.jpg" for number in range(_IMAGES)]
    split = {
        each: {f"{each}{label}": [f"{each}{label}/{name}" for name in names] for label in range(count)}
        for each, count in _CLASSES.items()
    }
    members = [member for classes in split.values() for each in classes.values() for member in each]
    images = [
        RawImage(member.split("/")[0], member.split("/")[1], encode_jpeg(photo(number, _SIZE)))
        for number, member in enumerate(members)
    ]
    write_raw(folder / "raw", ImageStream(images), "folder", "fail", _silent)
    pack(
        folder / "raw",
        split,
        folder / "packed",
        pack_size=_SIZE,
        progress=_silent,
    )


def newest_step(folder: Path) -> int:
    """Return the last step that work in `folder` has saved, 0 before the first."""
    return max((int(path.stem.split("-")[1]) for path in folder.glob("scratch/*/step-*.pt")), default=0)


def run_training(folder: Path, strategy: str, steps: int) -> None:
    """Train as the stage does: with validations, saved states and results."""
    every = max(_LEAST_BETWEEN, steps // LOOKS)
    settings: dict[str, Value] = {
        **_SETTINGS,
        "train.episodes": steps * _BATCHSZ,
        "train.checkpoint_every": every,
        "train.validate_every": 2 * every,
        "loader.workers": _LOADER_WORKERS[strategy],
        f"parallel.{strategy}.enabled": True,
    }
    params = params_with(settings)
    whole_training(strategy, params, folder / "packed", folder / strategy, folder / "scratch")


def restart_loaders(folder: Path, count: int) -> None:
    """Start a loader's workers anew, of both backends in turn; every other is given up early."""
    torch.set_num_threads(1)
    backends: tuple[Literal["packed", "jpeg"], ...] = ("packed", "jpeg")
    saved = folder / "scratch" / RESTARTS
    saved.mkdir(parents=True)
    for number in range(count):
        _read_some(folder, backends[number // 2 % 2], _READS[number % 2])
        (saved / f"step-{number + 1}.pt").touch()
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not (folder / SEEN).exists() or (folder / SEEN).read_text() != str(number + 1):
            if time.monotonic() > deadline:
                raise DeviceError("nobody looks at the loader any more")
            time.sleep(_POLL_SECONDS)
        (saved / f"step-{number + 1}.pt").unlink()


def _read_some(folder: Path, backend: Literal["packed", "jpeg"], reads: int) -> None:
    workload = Workload("conv4", _SIZE, k_query=1, batchsz=_BATCHSZ)
    split = PackedSplit(folder / "packed", "train")
    batches = loader_batches(split, workload, backend, _RESTARTED_WORKERS, steps=_STEPS)
    for _ in range(reads):
        next(batches)


def _silent(line: str) -> None:
    """Drop a line of progress."""
