"""Further seeds of a training, for real, in miniature."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tiny_data import PACKED_EPISODES, tiny_params

from parashot.records import read_rows, read_runs
from parashot.train.job import Job
from parashot.train.records import EpisodeAccuracy, SeedAccuracy, TrainResult
from parashot.train.run import train
from parashot.train.seeds import train_further_seeds

pytestmark = pytest.mark.usefixtures("one_core")


@pytest.mark.parametrize("strategy", ["serial", "dp"])
def test_a_training_is_run_again_with_each_further_seed(
    tiny_packed: Path, tmp_path: Path, strategy: str
) -> None:
    params = tiny_params({"seed": 7, "seeds_study.enabled": True, "seeds_study.seeds": 3})
    job = Job(
        strategy, params, tiny_packed, tmp_path / strategy, {"source": "tiny"}, None, tmp_path / "scratch"
    )
    train(job)
    own = read_rows(EpisodeAccuracy, job.out / "val_episodes.csv")
    train_further_seeds(job, train)
    rows = read_rows(SeedAccuracy, job.out / "seeds.csv")
    assert Counter(row.seed for row in rows) == dict.fromkeys((7, 8, 9), PACKED_EPISODES)
    assert [row.accuracy for row in rows if row.seed == 7] == [each.accuracy for each in own]
    assert len({tuple(row.accuracy for row in rows if row.seed == seed) for seed in (7, 8, 9)}) > 1
    first, *others = read_runs(job.out / "records.jsonl")
    assert first.params["seed"] == "7" and first.artifacts
    assert [each.name for each in others] == [f"train {strategy}, seed {seed}" for seed in (8, 9)]
    assert [each.params["seed"] for each in others] == ["8", "9"]
    assert all(each.parent == first.uuid and not each.artifacts and each.model is None for each in others)


def test_a_finished_seed_is_not_trained_again(tiny_packed: Path, tmp_path: Path) -> None:
    params = tiny_params({"seed": 7, "seeds_study.enabled": True, "seeds_study.seeds": 4})
    job = Job("serial", params, tiny_packed, tmp_path / "out", {}, None, tmp_path / "scratch")
    train(job)
    trained: list[int] = []

    def killed_at_the_third(again: Job) -> TrainResult | None:
        if len(trained) == 2:
            raise KeyboardInterrupt
        trained.append(again.params.seed)
        return train(again)

    with pytest.raises(KeyboardInterrupt):
        train_further_seeds(job, killed_at_the_third)
    assert not (job.out / "seeds.csv").exists()

    def counted(again: Job) -> TrainResult | None:
        trained.append(again.params.seed)
        return train(again)

    train_further_seeds(job, counted)
    assert trained == [8, 9, 10]
    assert {row.seed for row in read_rows(SeedAccuracy, job.out / "seeds.csv")} == {7, 8, 9, 10}
    assert list((tmp_path / "scratch/seeds").iterdir()) == []
