"""Trainings with and without a warm-up of the learning rate, for real, in miniature."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tiny_data import tiny_params

from parashot.questions.accuracy.records import WarmupRun
from parashot.questions.accuracy.warmup import study_warmup
from parashot.records import Provenance, read_json, read_rows, read_runs

pytestmark = pytest.mark.usefixtures("one_core")


def test_every_size_is_trained_with_and_without_by_every_seed(tiny_packed: Path, tmp_path: Path) -> None:
    params = tiny_params(
        {
            "seed": 7,
            "train.lr_batchsz": 2,
            "train.learning_rate": 0.001,
            "warmup_study.enabled": True,
            "warmup_study.sizes": [2, 4],
            "warmup_study.episodes": 8,
            "warmup_study.warmup_share": 0.5,
            "warmup_study.seeds": 3,
        }
    )
    study_warmup(params, tiny_packed, tmp_path / "out", Provenance({"warmup_study.seeds": "3"}))
    runs = read_rows(WarmupRun, tmp_path / "out/runs.csv")
    assert Counter((each.batchsz, each.warmup_steps, each.steps) for each in runs) == {
        (2, 0, 4): 3,
        (2, 2, 4): 3,
        (4, 0, 2): 3,
        (4, 1, 2): 3,
    }
    assert {each.seed for each in runs} == {7, 8, 9}
    assert {each.batchsz: each.learning_rate for each in runs} == {2: 0.001, 4: 0.002}
    assert len({each.val_accuracy for each in runs}) > 1
    parent, *children = read_runs(tmp_path / "out/records.jsonl")
    assert [each.params["warmup_steps"] for each in children] == ["0", "2", "0", "1"]
    assert {each.parent for each in children} == {parent.uuid}
    assert parent.params["warmup_study.seeds"] == "3"
    metrics = read_json(tmp_path / "out/metrics.json")
    mine = [each.val_accuracy for each in runs if (each.batchsz, each.warmup_steps) == (4, 1)]
    assert metrics["batchsz4_warmup1"]["val_accuracy_mean"] == pytest.approx(sum(mine) / 3)


def test_switched_off_it_says_so(tiny_packed: Path, tmp_path: Path) -> None:
    study_warmup(tiny_params(), tiny_packed, tmp_path / "out", Provenance())
    assert read_rows(WarmupRun, tmp_path / "out/runs.csv") == []
    assert read_json(tmp_path / "out/metrics.json") == {"warm-up": {}}
    _, skipped = read_runs(tmp_path / "out/records.jsonl")
    assert (skipped.status, skipped.tags["reason"]) == ("skipped", "warmup_study.enabled is false")
