"""The same training with further seeds, so that the luck of one is in the comparison of strategies.

Each seed draws first weights and episodes of its own, the same for every strategy; validation episodes are
the same for all seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from parashot.records import (
    EpisodeAccuracy,
    Run,
    SeedAccuracy,
    TrainResult,
    read_rows,
    read_runs,
    write_rows,
    write_runs,
)
from parashot.train.job import Job

Train = Callable[[Job], TrainResult | None]


def train_further_seeds(job: Job, train: Train) -> None:
    """Run the finished `job` again with each further seed of `params.seeds_study`.

    Its folder gains seeds.csv and the runs of those trainings; their models are not kept.
    """
    first = read_runs(job.out / "records.jsonl")
    rows, runs = _accuracies(job), []
    for seed in range(job.params.seed + 1, job.params.seed + job.params.seeds_study.seeds):
        with TemporaryDirectory() as folder:
            again = replace(
                job, params=replace(job.params, seed=seed), out=Path(folder) / "training", live=None
            )
            train(again)
            rows += _accuracies(again)
            runs.append(_below(first[0], read_runs(again.out / "records.jsonl")[0], seed))
    write_rows(job.out / "seeds.csv", SeedAccuracy, rows)
    write_runs(job.out / "records.jsonl", [*first, *runs])


def _accuracies(job: Job) -> list[SeedAccuracy]:
    episodes = read_rows(EpisodeAccuracy, job.out / "val_episodes.csv")
    return [SeedAccuracy(job.params.seed, each.episode, each.accuracy) for each in episodes]


def _below(first: Run, run: Run, seed: int) -> Run:
    """The run of a further seed, as MLflow shows it: under the first one, without files."""
    return replace(run, name=f"{first.name}, seed {seed}", parent=first.uuid, artifacts=(), model=None)
