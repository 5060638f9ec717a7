"""The same training with further seeds, so that the luck of one is in the comparison of strategies.

Each seed draws first weights and episodes of its own, the same for every strategy; validation episodes are
the same for all seeds, and so is a pretrained embedding.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from parashot.params import SeedsStudyParams
from parashot.records import Run, read_rows, read_runs, write_rows, write_runs
from parashot.tasks.relation import RelationTask
from parashot.train.job import Job
from parashot.train.records import EpisodeAccuracy, SeedAccuracy, TrainResult


def train_further_seeds(
    job: Job, study: SeedsStudyParams, train: Callable[[Job], TrainResult | None]
) -> None:
    """Run the finished `job`, a training of the Relation Network, again with each further seed of `study`.

    Its folder gains seeds.csv and the runs of those trainings; their models are not kept. What is finished
    lies in the job's scratch folder until all are, so that a killed study does not train it again.
    """
    task = cast("RelationTask", job.task)
    own_seed, first = task.params.seed, read_runs(job.out / "records.jsonl")
    rows, runs, done = _accuracies(job.out, own_seed), [], []
    with TemporaryDirectory() as temporary:
        for seed in range(own_seed + 1, own_seed + study.seeds):
            identity = (*job.identity, seed)
            provenance = replace(job.provenance, params={**job.provenance.params, "seed": str(seed)})
            again = replace(
                job, task=task.with_seed(seed), provenance=provenance, live=None, identity=identity
            )
            key = hashlib.sha256(repr((job.stage, identity)).encode()).hexdigest()[:24]
            again = replace(again, out=(job.scratch or Path(temporary)) / "seeds" / key)
            if not (again.out / "records.jsonl").exists():
                train(again)
            done.append(again.out)
            rows += _accuracies(again.out, seed)
            runs.append(_below(first[0], read_runs(again.out / "records.jsonl")[0], seed))
        write_rows(job.out / "seeds.csv", SeedAccuracy, rows)
        write_runs(job.out / "records.jsonl", [*first, *runs])
        for each in done:
            shutil.rmtree(each)


def _accuracies(folder: Path, seed: int) -> list[SeedAccuracy]:
    episodes = read_rows(EpisodeAccuracy, folder / "val_episodes.csv")
    return [SeedAccuracy(seed, each.episode, each.accuracy) for each in episodes]


def _below(first: Run, run: Run, seed: int) -> Run:
    """The run of a further seed as MLflow shows it: under the first one, without files."""
    return replace(run, name=f"{first.name}, seed {seed}", parent=first.uuid, artifacts=(), model=None)
