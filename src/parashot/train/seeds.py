"""The same training again: with further seeds, or as a twin that only rounding sets apart.

Each seed draws first weights and episodes of its own, the same for every strategy; validation episodes are
the same for all seeds, and so is a pretrained embedding. A twin begins with weights that are off by 1e-7 of
themselves, less than float32 resolves at 1, and is the same otherwise: an A/A test.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from parashot.files import replacing_folder
from parashot.records import Run, read_result, read_rows, read_runs, write_rows, write_runs
from parashot.tasks.relation import RelationTask
from parashot.train.job import Job
from parashot.train.records import EpisodeAccuracy, SeedAccuracy, TrainResult
from parashot.train.run import train

PERTURBATION = 1e-7


def train_repeatedly(job: Job, *, twin: bool, seeds: int) -> None:
    """Run `job`, a training of the Relation Network; if it ends well, run it again as a twin and with seeds.

    seeds: how many, its own and the next ones. Its folder gains twin.csv, the twin's validation episodes,
    seeds.csv, those of every seed, and the further runs, without models. What is finished lies in the job's
    scratch folder until all are, for a killed study starts with an empty `job.out`.
    """
    task = cast("RelationTask", job.task)
    further = range(task.params.seed + 1, task.params.seed + seeds)
    others = {"twin": replace(job, task=replace(task, perturbation=PERTURBATION))} if twin else {}
    others |= {f"seed {seed}": _with_seed(job, seed) for seed in further}
    with _scratch(job) as folder:
        _train_into(folder / "first", job)
        with replacing_folder(job.out) as out:
            shutil.copytree(folder / "first", out, dirs_exist_ok=True)
        if read_result(TrainResult, job.out / "result.json").status != "ok":
            return
        for name, other in others.items():
            _train_into(folder / name, replace(other, live=None, identity=(*job.identity, name)))
        if twin:
            shutil.copy(folder / "twin/val_episodes.csv", job.out / "twin.csv")
        if further:
            accuracies = [_seed_accuracies(folder / f"seed {seed}", seed) for seed in further]
            own = _seed_accuracies(job.out, task.params.seed)
            write_rows(job.out / "seeds.csv", SeedAccuracy, sum(accuracies, start=own))
        first, *_ = read_runs(job.out / "records.jsonl")
        runs = [_below(first, folder / name) for name in others]
        write_runs(job.out / "records.jsonl", [first, *sorted(runs, key=lambda run: run.start_ms)])


@contextmanager
def _scratch(job: Job) -> Iterator[Path]:
    """Folder of all of the job's trainings, in its scratch folder if it has one; it goes at the end."""
    with TemporaryDirectory() as temporary:
        key = hashlib.sha256(repr((job.stage, job.identity)).encode()).hexdigest()[:24]
        folder = (job.scratch or Path(temporary)) / "again" / key
        yield folder
        shutil.rmtree(folder)


def _train_into(out: Path, job: Job) -> None:
    """Train unless that is done."""
    if not (out / "records.jsonl").exists():
        train(replace(job, out=out))


def _with_seed(job: Job, seed: int) -> Job:
    provenance = replace(job.provenance, params={**job.provenance.params, "seed": str(seed)})
    return replace(job, task=cast("RelationTask", job.task).with_seed(seed), provenance=provenance)


def _seed_accuracies(folder: Path, seed: int) -> list[SeedAccuracy]:
    episodes = read_rows(EpisodeAccuracy, folder / "val_episodes.csv")
    return [SeedAccuracy(seed, each.episode, each.accuracy) for each in episodes]


def _below(first: Run, folder: Path) -> Run:
    """The run of a further training as MLflow shows it: under the first one, without files."""
    run = read_runs(folder / "records.jsonl")[0]
    return replace(run, name=f"{first.name}, {folder.name}", parent=first.uuid, artifacts=(), model=None)
