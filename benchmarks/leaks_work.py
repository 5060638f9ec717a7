"""The work that is watched for leaks, as `python -c PROGRAM FOLDER WORK N`, in a process of its own.

A training of N steps saves its state `LOOKS` times: so it can be seen from outside how far it is. A loop of N
loader restarts leaves files of the same names, and goes on when the file `SEEN` says that it was looked at.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch

from benchmarks.feeds import our_batches
from benchmarks.workload import K_SHOT, N_WAY, Workload
from parashot.command import guarded
from parashot.data.episode_dataset import Backend
from parashot.data.pack import pack
from parashot.data.packed import PackedSplit
from parashot.data.sources import download
from parashot.data.splits import read_split, write_split
from parashot.lifetime import end_in_order, end_with_parent
from parashot.parsing import Value
from parashot.train.job import episode_job
from parashot.train.run import train

PROGRAM = "import sys; from benchmarks.leaks_work import main; sys.exit(main())"
"""Not `python -m`: every worker of a loader would import the main module again."""

LOOKS = 200
"""Number of looks at a training, unless it is short."""

SEEN = "seen"
SERIAL, DDP, RESTARTS = "serial", "ddp", "restarts"

_SHAPE = Workload("conv4", 16, k_query=1, batchsz=2)
_SETTINGS: dict[str, Value] = {
    "data.source": "synthetic",
    "data.synthetic.images_per_class": 10,
    "data.synthetic.image_size": _SHAPE.image_size,
    "evaluate.k_query": _SHAPE.k_query,
    "evaluate.val_episodes": 20,
    "train.learning_rate": 1e-4,
    "train.val_episodes": 20,
    "augment.crop": 0.5,
    "augment.flip": True,
    "augment.jitter": 0.2,
    "loader.backend": "packed",
    "parallel.device": "cpu",
    "parallel.replicas": 2,
}

_BACKENDS: tuple[Backend, ...] = ("packed", "jpeg")
_STEPS, _READS = 6, (6, 2)
"""Batches of a restarted loader, and how many of these are read: all, or some."""


def main() -> int:
    """Do what the command line asks for, no longer than its parent lives; return the exit status."""
    end_in_order()
    end_with_parent()
    folder, work, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    if work == RESTARTS:
        return guarded(lambda: restart_loaders(folder, count))
    return guarded(lambda: run_training(folder, work, count))


def prepare(folder: Path) -> None:
    """Write the packed images that all work on, to the folder `packed`, as the stages do."""
    params, raw, split = _SHAPE.params(_SETTINGS), folder / "raw", folder / "split"
    download(params.data, params.seed, folder, folder / "downloads", raw)
    write_split(raw, split, params.seed, N_WAY, images_needed=K_SHOT + _SHAPE.k_query)
    pack(raw, read_split(split), folder / "packed", pack_size=params.data.pack_size)


def newest_step(folder: Path) -> int:
    """Return the last step that work in `folder` has saved, 0 before the first."""
    return max((int(path.stem.split("-")[1]) for path in folder.glob("scratch/*/step-*.pt")), default=0)


def run_training(folder: Path, strategy: str, steps: int) -> None:
    """Train as the stage does: with validations, saved states and results."""
    every = max(20, steps // LOOKS)  # steps from one look to the next
    settings: dict[str, Value] = {
        **_SETTINGS,
        "train.episodes": steps * _SHAPE.batchsz,
        "train.checkpoint_every": every,
        "train.validate_every": 2 * every,
        "loader.workers": 2 if strategy == DDP else 0,
        f"parallel.{strategy}.enabled": True,
    }
    packed, out, scratch = folder / "packed", folder / strategy, folder / "scratch"
    train(episode_job(strategy, _SHAPE.params(settings), packed, out, scratch=scratch))


def restart_loaders(folder: Path, count: int) -> None:
    """Start a loader's workers anew, of both backends in turn; every other is given up early."""
    torch.set_num_threads(1)
    saved, seen = folder / "scratch" / RESTARTS, folder / SEEN
    saved.mkdir(parents=True)
    seen.touch()
    for number in range(count):
        read_some(folder / "packed", _BACKENDS[number // 2 % 2], _READS[number % 2])
        (saved / f"step-{number + 1}.pt").touch()
        while seen.read_text() != str(number + 1):
            time.sleep(0.005)
        (saved / f"step-{number + 1}.pt").unlink()


def read_some(packed: Path, backend: Backend, reads: int) -> None:
    """Start a loader with two workers and read some of its batches."""
    batches = our_batches(PackedSplit(packed, "train"), _SHAPE, backend, workers=2, steps=_STEPS)
    for _ in range(reads):
        next(batches)
