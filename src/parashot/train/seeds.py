"""The same training with further seeds, so that the luck of one is in the comparison of strategies.

Each seed draws first weights and episodes of its own, the same for every strategy; validation episodes are
the same for all seeds, and so is a pretrained embedding.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from parashot.data.manifest import read_manifest, sha256
from parashot.records import Run, read_rows, read_runs, write_rows, write_runs
from parashot.train.checkpoint import key
from parashot.train.job import Job
from parashot.train.knobs import params_of
from parashot.train.records import EpisodeAccuracy, SeedAccuracy, TrainResult

Train = Callable[[Job], TrainResult | None]


def train_further_seeds(job: Job, train: Train) -> None:
    """Run the finished `job` again with each further seed of `params.seeds_study`.

    Its folder gains seeds.csv and the runs of those trainings; their models are not kept. What is finished
    lies in the job's scratch folder until all are, so that a killed study does not train it again.
    """
    first = read_runs(job.out / "records.jsonl")
    rows, runs, done = _accuracies(job), [], []
    with TemporaryDirectory() as temporary:
        folder = (job.scratch or Path(temporary)) / "seeds"
        for seed in range(job.params.seed + 1, job.params.seed + job.params.seeds_study.seeds):
            again = replace(job, params=replace(job.params, seed=seed), live=None)
            again = replace(again, out=folder / _name(again))
            if not (again.out / "records.jsonl").exists():
                train(again)
            done.append(again.out)
            rows += _accuracies(again)
            runs.append(_below(first[0], read_runs(again.out / "records.jsonl")[0], seed))
        write_rows(job.out / "seeds.csv", SeedAccuracy, rows)
        write_runs(job.out / "records.jsonl", [*first, *runs])
        for each in done:
            shutil.rmtree(each)


def _name(job: Job) -> str:
    """A folder's name for one training: with other params or data it has another."""
    begun = job.pretrained and sha256(job.pretrained)
    return key(job.strategy, params_of(job.params, job.strategy), read_manifest(job.packed), begun)


def _accuracies(job: Job) -> list[SeedAccuracy]:
    episodes = read_rows(EpisodeAccuracy, job.out / "val_episodes.csv")
    return [SeedAccuracy(job.params.seed, each.episode, each.accuracy) for each in episodes]


def _below(first: Run, run: Run, seed: int) -> Run:
    """The run of a further seed, as MLflow shows it: under the first one, without files."""
    return replace(run, name=f"{first.name}, seed {seed}", parent=first.uuid, artifacts=(), model=None)
