"""Further seeds of a training, for real, in miniature."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from tiny_data import PACKED_EPISODES, tiny_params

from parashot.records import Provenance, read_rows, read_runs
from parashot.tasks.relation import RelationTask
from parashot.train.job import Job, episode_job
from parashot.train.records import EpisodeAccuracy, SeedAccuracy, TrainResult
from parashot.train.run import train
from parashot.train.seeds import train_further_seeds

pytestmark = pytest.mark.usefixtures("one_core")


@pytest.fixture
def job(tiny_packed: Path, tmp_path: Path) -> Job:
    """A finished training."""
    described = episode_job(
        "serial",
        tiny_params({"seed": 7}),
        tiny_packed,
        tmp_path / "out",
        Provenance({"seed": "7"}),
        scratch=tmp_path / "scratch",
    )
    train(described)
    return described


def test_a_training_is_run_again_with_each_further_seed(job: Job) -> None:
    own = read_rows(EpisodeAccuracy, job.out / "val_episodes.csv")
    train_further_seeds(job, replace(tiny_params().seeds_study, seeds=3), train)
    rows = read_rows(SeedAccuracy, job.out / "seeds.csv")
    assert Counter(row.seed for row in rows) == dict.fromkeys((7, 8, 9), PACKED_EPISODES)
    assert [row.accuracy for row in rows if row.seed == 7] == [each.accuracy for each in own]
    assert len({tuple(row.accuracy for row in rows if row.seed == seed) for seed in (7, 8, 9)}) > 1
    first, *others = read_runs(job.out / "records.jsonl")
    assert first.artifacts
    assert [each.name for each in others] == ["train serial, seed 8", "train serial, seed 9"]
    assert [each.params["seed"] for each in (first, *others)] == ["7", "8", "9"]
    assert all(each.parent == first.uuid and not each.artifacts and each.model is None for each in others)


def test_a_finished_seed_is_not_trained_again(job: Job) -> None:
    study, trained = replace(tiny_params().seeds_study, seeds=4), list[int]()

    def seed_of(again: Job) -> int:
        task = cast("RelationTask", again.task)
        assert task.validation_seed == 7
        return task.params.seed

    def killed_at_the_third(again: Job) -> TrainResult | None:
        if len(trained) == 2:
            raise KeyboardInterrupt
        return counted(again)

    def counted(again: Job) -> TrainResult | None:
        trained.append(seed_of(again))
        return train(again)

    with pytest.raises(KeyboardInterrupt):
        train_further_seeds(job, study, killed_at_the_third)
    assert not (job.out / "seeds.csv").exists()
    train_further_seeds(job, study, counted)
    assert trained == [8, 9, 10]
    assert {row.seed for row in read_rows(SeedAccuracy, job.out / "seeds.csv")} == {7, 8, 9, 10}
    assert job.scratch is not None
    assert list((job.scratch / "seeds").iterdir()) == []
