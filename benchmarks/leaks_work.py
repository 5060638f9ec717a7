"""The work that is watched for leaks, as `python -c PROGRAM FOLDER WORK N`, in a process of its own.

A training of N steps saves its state `LOOKS` times: so it can be seen from outside how far it is. N restarts
of the loader tell of each by a line, and go on when they are answered by one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import torch
from parashot.data.batches import Plan

from benchmarks.images import photo
from parashot.command import guarded
from parashot.data.episodes import EpisodeSpec
from parashot.data.images import encode_jpeg
from parashot.data.loaders import Backend, EpisodeDataset, episode_loader
from parashot.data.pack import pack
from parashot.data.packed import PackedSplit
from parashot.data.raw import ImageStream, RawImage, write_raw
from parashot.lifetime import end_in_order, end_with_parent
from parashot.params import Params
from parashot.parsing import parse, read_yaml
from parashot.recipes import Value, apply
from parashot.train.job import Job
from parashot.train.run import train

PROGRAM = "import sys; from benchmarks.leaks_work import main; sys.exit(main())"
"""Not `python -m`: every worker of a loader would import the main module again."""

LOOKS = 200
"""How often a training is looked at, unless it is short."""

SERIAL, DDP, RESTARTS = "serial", "ddp", "restarts"

_PARAMS = Path(__file__).resolve().parents[1] / "params.yaml"
_SIZE, _CLASSES, _IMAGES, _VAL_EPISODES = 16, {"train": 8, "val": 6, "test": 6}, 10, 20
_SPEC = EpisodeSpec(n_way=2, k_shot=1, k_query=1)
_BATCHSZ = 2
_SETTINGS: dict[str, Value] = {
    "episode.n_way": _SPEC.n_way,
    "episode.k_shot": _SPEC.k_shot,
    "episode.k_query": _SPEC.k_query,
    "evaluate.k_query": _SPEC.k_query,
    "evaluate.val_episodes": _VAL_EPISODES,
    "model.embedding": "conv4",
    "model.image_size": _SIZE,
    "model.pairing": "split",
    "train.batchsz": _BATCHSZ,
    "train.batch_per": "global",
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
}
_LOADER_WORKERS = {SERIAL: 0, DDP: 2}
_LEAST_BETWEEN = 20
"""Steps from one look to the next."""

_RESTARTED_WORKERS, _BATCHES, _READ = 2, 6, 2
"""A loader's workers, its batches, and how many of these are read where it is given up."""


def main() -> int:
    """Do what the command line asks for, no longer than who watches lives; return the exit status."""
    end_in_order()
    end_with_parent()
    folder, work, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    if work == RESTARTS:
        return guarded(lambda: restart_loaders(folder, count))
    return guarded(lambda: run_training(folder, work, count))


def prepare(folder: Path) -> None:
    """Write the packed images that all work on."""
    labels = {name: [f"{name}{number}" for number in range(count)] for name, count in _CLASSES.items()}
    names = [f"{number}.jpg" for number in range(_IMAGES)]
    every = [label for each in labels.values() for label in each]
    write_raw(folder / "raw", ImageStream(_images(every, names)), "folder", "fail", _unsaid)
    split = {
        name: {label: [f"{label}/{each}" for each in names] for label in each}
        for name, each in labels.items()
    }
    pack(folder / "raw", split, packed(folder), pack_size=_SIZE, progress=_unsaid)


def packed(folder: Path) -> Path:
    """Where the images are."""
    return folder / "packed"


def scratch(folder: Path) -> Path:
    """Where unfinished trainings are saved."""
    return folder / "scratch"


def run_training(folder: Path, strategy: str, steps: int) -> None:
    """A whole training as the stage does it: it validates, saves, and writes its results."""
    every = max(_LEAST_BETWEEN, steps // LOOKS)
    settings: dict[str, Value] = {
        **_SETTINGS,
        "train.episodes": steps * _BATCHSZ,
        "train.checkpoint_every": every,
        "train.validate_every": 2 * every,
        "loader.workers": _LOADER_WORKERS[strategy],
        f"parallel.{strategy}.enabled": True,
    }
    params = parse(Params, apply(_tree(), settings))
    train(Job(strategy, params, packed(folder), folder / strategy, scratch=scratch(folder)))


def restart_loaders(folder: Path, count: int) -> None:
    """Start a loader's workers anew, of both backends in turn; every other is given up before its end."""
    torch.set_num_threads(1)
    backends: tuple[Backend, ...] = ("packed", "jpeg")
    for number in range(count):
        backend, reads = backends[number // 2 % 2], (_BATCHES, _READ)[number % 2]
        _read_some(folder, backend, reads)
        print(number + 1, flush=True)
        if not sys.stdin.readline():
            return


def _read_some(folder: Path, backend: Backend, reads: int) -> None:
    plan = Plan(_BATCHES * _BATCHSZ, _BATCHSZ)
    data = EpisodeDataset(PackedSplit(packed(folder), "train"), _SPEC, plan, 0, backend, _SIZE)
    loader = episode_loader(data, _RESTARTED_WORKERS, 2, torch.device("cpu"))
    for _ in range(reads):
        next(loader)


def _images(labels: Iterable[str], names: Iterable[str]) -> Iterable[RawImage]:
    places = [(label, name) for label in labels for name in names]
    for number, (label, name) in enumerate(places):
        yield RawImage(label, name, encode_jpeg(photo(number, _SIZE)))


def _tree() -> dict[str, object]:
    tree = read_yaml(_PARAMS)
    assert isinstance(tree, dict)  # this checkout's own
    return tree


def _unsaid(line: str) -> None:
    """Progress that nobody is told of."""
