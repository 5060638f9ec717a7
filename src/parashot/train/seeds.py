"""The same training again: with further seeds, or as a twin that only rounding sets apart.

Each seed draws first weights and episodes of its own, the same for every strategy; validation episodes are
the same for all seeds, and so is a pretrained embedding. A twin begins with weights that are off by 1e-7 of
themselves, less than float32 resolves at 1, and is the same otherwise: an A/A test.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from parashot.files import replacing_folder
from parashot.params import SeedsStudyParams
from parashot.records import Run, read_result, read_rows, read_runs, write_rows, write_runs
from parashot.tasks.relation import RelationTask
from parashot.train.job import Job
from parashot.train.records import EpisodeAccuracy, SeedAccuracy, TrainResult

Train = Callable[[Job], TrainResult | None]

PERTURBATION = 1e-7


@contextmanager
def first_training(job: Job, train: Train) -> Iterator[TrainResult]:
    """Train, and yield the result for a block that trains again.

    Until the block is done, a copy lies in the job's scratch folder: a killed study starts with an empty
    `job.out`, and takes the training from there.
    """
    with _scratch(job, "first") as folder:
        kept = folder / "first"
        if not (kept / "records.jsonl").exists():
            train(replace(job, out=kept))
        with replacing_folder(job.out) as out:
            shutil.copytree(kept, out, dirs_exist_ok=True)
        yield read_result(TrainResult, kept / "result.json")


def train_further_seeds(job: Job, study: SeedsStudyParams, train: Train) -> None:
    """Run the finished `job`, a training of the Relation Network, again with each further seed of `study`.

    Its folder gains seeds.csv and the runs of those trainings; their models are not kept. What is finished
    lies in the job's scratch folder until all are, so that a killed study does not train it again.
    """
    task = cast("RelationTask", job.task)
    own_seed = task.params.seed
    rows = _seed_accuracies(job.out, own_seed)
    names = {seed: f"seed {seed}" for seed in range(own_seed + 1, own_seed + study.seeds)}
    with _trainings(job, [*names.values()]) as folder:
        for seed, name in names.items():
            provenance = replace(job.provenance, params={**job.provenance.params, "seed": str(seed)})
            again = replace(job, task=task.with_seed(seed), provenance=provenance)
            rows += _seed_accuracies(_train_again(again, name, folder, train), seed)
        write_rows(job.out / "seeds.csv", SeedAccuracy, rows)


def train_twin(job: Job, train: Train) -> None:
    """Run the finished `job`, a training of the Relation Network, again as a twin.

    Its folder gains twin.csv, the twin's validation episodes, and its run.
    """
    task = replace(cast("RelationTask", job.task), perturbation=PERTURBATION)
    with _trainings(job, ["twin"]) as folder:
        twin = _train_again(replace(job, task=task), "twin", folder, train)
        shutil.copy(twin / "val_episodes.csv", job.out / "twin.csv")


@contextmanager
def _trainings(job: Job, names: Sequence[str]) -> Iterator[Path]:
    """Folder of the further trainings `names`; when all are done, their runs are added to those of `job`."""
    with _scratch(job, *names) as folder:
        yield folder
        runs = read_runs(job.out / "records.jsonl")
        further = [_below(runs[0], folder / name) for name in names]
        further.sort(key=lambda run: run.start_ms)
        write_runs(job.out / "records.jsonl", [*runs, *further])


@contextmanager
def _scratch(job: Job, *names: str) -> Iterator[Path]:
    """Folder of the trainings `names`, in the job's scratch folder if it has one; it goes at the end."""
    with TemporaryDirectory() as temporary:
        key = hashlib.sha256(repr((job.stage, job.identity, names)).encode()).hexdigest()[:24]
        folder = (job.scratch or Path(temporary)) / "again" / key
        yield folder
        shutil.rmtree(folder)


def _train_again(job: Job, name: str, folder: Path, train: Train) -> Path:
    """Train unless that is done; returns the folder of results."""
    out = folder / name
    if not (out / "records.jsonl").exists():
        train(replace(job, live=None, identity=(*job.identity, name), out=out))
    return out


def _seed_accuracies(folder: Path, seed: int) -> list[SeedAccuracy]:
    episodes = read_rows(EpisodeAccuracy, folder / "val_episodes.csv")
    return [SeedAccuracy(seed, each.episode, each.accuracy) for each in episodes]


def _below(first: Run, folder: Path) -> Run:
    """The run of a further training as MLflow shows it: under the first one, without files."""
    run = read_runs(folder / "records.jsonl")[0]
    return replace(run, name=f"{first.name}, {folder.name}", parent=first.uuid, artifacts=(), model=None)
