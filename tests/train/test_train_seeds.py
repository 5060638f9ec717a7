"""Further seeds of a training, for real, in miniature."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch
from tiny_data import PACKED_EPISODES, tiny_params

from parashot.records import Provenance, read_rows, read_runs
from parashot.tasks.relation import RelationTask
from parashot.train.job import Job, episode_job
from parashot.train.records import EpisodeAccuracy, SeedAccuracy, TrainResult
from parashot.train.run import train
from parashot.train.seeds import train_further_seeds, train_twin

pytestmark = pytest.mark.usefixtures("one_core")


def test_further_seeds_are_trained_each_once_though_one_was_killed(tiny_packed: Path, tmp_path: Path) -> None:
    out, scratch, trained = tmp_path / "out", tmp_path / "scratch", list[int]()
    provenance = Provenance({"seed": "7"})
    job = episode_job("serial", tiny_params({"seed": 7}), tiny_packed, out, provenance, scratch=scratch)
    train(job)
    own = read_rows(EpisodeAccuracy, out / "val_episodes.csv")

    def counted(again: Job) -> TrainResult | None:
        task = cast("RelationTask", again.task)
        assert task.validation_seed == 7
        trained.append(task.params.seed)
        return train(again)

    def killed_at_the_second(again: Job) -> TrainResult | None:
        if trained:
            raise KeyboardInterrupt
        return counted(again)

    study = replace(tiny_params().seeds_study, seeds=3)
    with pytest.raises(KeyboardInterrupt):
        train_further_seeds(job, study, killed_at_the_second)
    assert not (out / "seeds.csv").exists()
    train_further_seeds(job, study, counted)
    assert trained == [8, 9]
    assert list((scratch / "again").iterdir()) == []

    rows = read_rows(SeedAccuracy, out / "seeds.csv")
    assert Counter(row.seed for row in rows) == dict.fromkeys((7, 8, 9), PACKED_EPISODES)
    assert [row.accuracy for row in rows if row.seed == 7] == [each.accuracy for each in own]
    assert len({tuple(row.accuracy for row in rows if row.seed == seed) for seed in (7, 8, 9)}) > 1
    first, *others = read_runs(out / "records.jsonl")
    assert first.artifacts
    assert [each.name for each in others] == ["train serial, seed 8", "train serial, seed 9"]
    assert [each.params["seed"] for each in (first, *others)] == ["7", "8", "9"]
    assert all(each.parent == first.uuid and not each.artifacts and each.model is None for each in others)


def test_a_twin_is_the_same_training_but_for_rounding(tiny_packed: Path, tmp_path: Path) -> None:
    job = episode_job("serial", tiny_params(), tiny_packed, tmp_path / "out")
    train(job)
    seen: list[Job] = []
    train_twin(job, lambda again: seen.append(again) or train(again))
    first, twin = (job.task.network(), seen[0].task.network())
    for ours, theirs in zip(first.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(theirs, ours, rtol=1e-6, atol=0)
    assert any(not torch.equal(*pair) for pair in zip(first.parameters(), twin.parameters(), strict=True))
    assert len(read_rows(EpisodeAccuracy, job.out / "twin.csv")) == PACKED_EPISODES
    main, other = read_runs(job.out / "records.jsonl")
    assert (other.name, other.parent) == ("train serial, twin", main.uuid)
