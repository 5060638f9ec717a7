"""A whole training, in miniature: what it writes, and what it leaves when it fails."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from tiny_data import EVALUATED, PACKED_EPISODES, SEED, tiny_params

from parashot.model.network import build_network
from parashot.model.weights import load_network
from parashot.parallel.registry import STRATEGIES
from parashot.parallel.strategy import Strategy
from parashot.parsing import Value
from parashot.records import Provenance, read_json, read_result, read_rows, read_runs
from parashot.task import Batch, mean_and_ci95
from parashot.tasks.evaluation import draw_split, episode_accuracies
from parashot.tasks.relation import RelationTask
from parashot.train.job import Job, episode_job
from parashot.train.records import EpisodeAccuracy, HistoryRow, SeedAccuracy, TrainResult
from parashot.train.run import train
from parashot.train.seeds import train_repeatedly

pytestmark = pytest.mark.usefixtures("one_core")
RECORDS = {"history.csv", "metrics.json", "records.jsonl", "result.json"}
FILES = {*RECORDS, "model.safetensors", "val_episodes.csv"}
PROVENANCE = Provenance({"train.batchsz": "3"}, {"source": "tiny"})
Train = Callable[..., TrainResult]


@pytest.fixture
def run(tiny_packed: Path, tmp_path: Path, standing_launch: None) -> Train:
    """Train on the tiny data, with `train.x` given as `train__x`."""

    def trained(strategy: str = "serial", out: str = "out", **settings: Value) -> TrainResult:
        job = episode_job(strategy, tiny_params(None, **settings), tiny_packed, tmp_path / out, PROVENANCE)
        result = train(job)
        assert result is not None
        return result

    return trained


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_folder_holds_all_there_is_to_know(
    run: Train, tiny_packed: Path, tmp_path: Path, strategy: str
) -> None:
    result, out = run(strategy), tmp_path / "out"
    replicas = 1 if strategy == "serial" else 2
    assert names(out) == FILES
    assert read_result(TrainResult, out / "result.json") == result
    assert (result.status, result.replicas, result.steps, result.items) == ("ok", replicas, 3, 7)
    assert result.ranks_identical

    history = read_rows(HistoryRow, out / "history.csv")
    assert [(row.step, row.items) for row in history] == [(1, 3), (2, 6), (3, 7)]
    assert [row.val_accuracy is not None for row in history] == [False, True, True]
    assert history[-1].val_accuracy == result.val_accuracy
    assert result.seconds == pytest.approx(sum(row.step_seconds for row in history))
    metrics = read_json(out / "metrics.json")
    assert metrics["val_accuracy"] == result.val_accuracy
    assert metrics["items_per_second"] == pytest.approx(7 / history[-1].seconds)
    assert {type(value) for value in metrics.values()} <= {int, float}

    # the saved model, evaluated alone, has the accuracies that were written, by however many ranks
    network = load_network(out / "model.safetensors")
    measured = episode_accuracies(network, draw_split(tiny_packed, "val", EVALUATED, PACKED_EPISODES, SEED))
    written = read_rows(EpisodeAccuracy, out / "val_episodes.csv")
    assert [each.episode for each in written] == list(range(PACKED_EPISODES))
    np.testing.assert_allclose([each.accuracy for each in written], measured)
    assert (result.val_accuracy, result.val_accuracy_ci95) == pytest.approx(mean_and_ci95(measured))
    untrained = build_network(tiny_params().model, SEED).state_dict()
    assert any(not torch.equal(value, untrained[name]) for name, value in network.state_dict().items())

    (record,) = read_runs(out / "records.jsonl")
    assert (record.name, record.stage, record.status) == (f"train {strategy}", f"train-{strategy}", "ok")
    assert record.end_ms is not None and record.end_ms >= record.start_ms
    assert set(record.artifacts) == FILES - {"metrics.json", "records.jsonl"}
    assert record.tags == {"source": "tiny", "strategy": strategy, "how": result.how}
    assert record.params == {"train.batchsz": "3"}
    losses = [(each.step, each.value) for each in record.metrics if each.key == "loss"]
    assert losses == [(row.step, row.loss) for row in history]
    points = [(each.key, each.step) for each in record.metrics]
    assert len({*points}) == len(points) and ("final_val_accuracy", history[-1].step) in points


def test_it_gives_the_same_bytes_again_whether_memory_is_measured_or_not(
    run: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("dp", "first")
    monkeypatch.setattr("parashot.train.run._MEMORY_STEPS", 0)
    run("dp", "second")
    for name in ("model.safetensors", "val_episodes.csv"):
        first, second = ((tmp_path / each / name).read_bytes() for each in ("first", "second"))
        assert first == second


def test_a_batch_for_each_rank_is_as_many_times_the_work(run: Train, tmp_path: Path) -> None:
    result = run("ddp", train__batch_per="rank", train__batchsz=2, train__episodes=5)
    assert (result.replicas, result.batch_per) == (2, "rank")
    assert (result.batchsz, result.items, result.steps) == (4, 10, 3)
    assert [row.items for row in read_rows(HistoryRow, tmp_path / "out/history.csv")] == [4, 8, 10]


def test_a_small_batch_says_which_replicas_it_feeds(run: Train) -> None:
    result = run("dp", parallel__replicas=4, train__batchsz=2)
    assert result.replicas == 2
    assert result.how.endswith("; batchsz 2 feeds only 2 of 4")
    lone = run("dp", train__batch_per="rank")  # one process is one rank
    assert (lone.replicas, lone.batchsz, lone.items) == (2, 3, 7)


def test_what_is_not_run_is_skipped_with_its_reason(run: Train, tmp_path: Path) -> None:
    result, out = run("layer_split", parallel__replicas=3), tmp_path / "out"
    reason = "layer_split has 2 parts for 2 devices, not 3; set parallel.replicas=2"
    assert result == TrainResult("layer_split", "skipped", reason)
    assert names(out) == RECORDS
    assert read_rows(HistoryRow, out / "history.csv") == []
    assert read_json(out / "metrics.json") == {"skipped": 1}
    (record,) = read_runs(out / "records.jsonl")
    assert (record.status, record.tags["reason"], record.metrics) == ("skipped", reason, ())
    assert record.params == {"train.batchsz": "3"}


def test_replicas_that_drift_apart_are_noted_at_the_next_save(
    run: Train, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    agree = iter([True, False])  # test_strategies.py: one bit is seen
    monkeypatch.setattr(Strategy, "replicas_agree", lambda self: next(agree))
    assert run(train__checkpoint_every=1).ranks_identical is False
    assert "train serial: after step 2 the replicas hold different parameters" in caplog.text


def test_a_training_that_fails_leaves_what_was_there(
    run: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, taken = Strategy.step, count()

    def failing(self: Strategy, batch: Batch) -> torch.Tensor:
        if next(taken) >= 7:
            raise RuntimeError("the device is lost")
        return real(self, batch)

    (tmp_path / "out").mkdir()
    (tmp_path / "out/of_another_version.csv").write_text("old")
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="the device is lost") as failure:
        patch.setattr(Strategy, "step", failing)
        run("dp", train__episodes=30)
    assert failure.tb is not None  # it keeps the training alive, so that no thread ends by chance
    assert names(tmp_path / "out") == {"of_another_version.csv"}
    assert not [each.name for each in threading.enumerate() if each.name.startswith("replica-")]
    run("dp")
    assert names(tmp_path / "out") == FILES
    assert names(tmp_path) == {"out"}


def test_a_twin_and_further_seeds_are_trained_each_once_though_one_was_killed(
    tiny_packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin is the same training but for rounding."""
    out, scratch, trained = tmp_path / "out", tmp_path / "scratch", list[Job]()
    provenance = Provenance({"seed": "7"})
    job = episode_job("serial", tiny_params({"seed": 7}), tiny_packed, out, provenance, scratch=scratch)

    def noted(each: Job) -> TrainResult | None:
        task = cast("RelationTask", each.task)
        assert (task.validation_seed or task.params.seed) == 7
        trained.append(each)
        return train(each)

    def killed_at_the_third(each: Job) -> TrainResult | None:
        if len(trained) == 2:
            raise KeyboardInterrupt
        return noted(each)

    monkeypatch.setattr("parashot.train.seeds.train", killed_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        train_repeatedly(job, twin=True, seeds=3)
    assert names(out) == FILES
    before = (out / "records.jsonl").read_bytes()
    shutil.rmtree(out)  # as DVC does before it starts the stage again
    (unfinished,) = (scratch / "again").iterdir()
    (unfinished / ".seed 8.1.tmp").mkdir()  # half written by a process whose PID is another's now
    monkeypatch.setattr("parashot.train.seeds.train", noted)
    train_repeatedly(job, twin=True, seeds=3)
    assert [each.out.name for each in trained] == ["first", "twin", "seed 8", "seed 9"]
    assert names(out) == {*FILES, "twin.csv", "seeds.csv"}
    assert (out / "records.jsonl").read_bytes().startswith(before)
    assert list((scratch / "again").iterdir()) == []

    pairs = list(zip(*(each.task.network().parameters() for each in trained[:2]), strict=True))
    for ours, theirs in pairs:
        torch.testing.assert_close(theirs, ours, rtol=1e-6, atol=0)
    assert any(not torch.equal(*pair) for pair in pairs)
    assert len(read_rows(EpisodeAccuracy, out / "twin.csv")) == PACKED_EPISODES
    rows, own = (
        read_rows(SeedAccuracy, out / "seeds.csv"),
        read_rows(EpisodeAccuracy, out / "val_episodes.csv"),
    )
    assert Counter(row.seed for row in rows) == dict.fromkeys((7, 8, 9), PACKED_EPISODES)
    assert [row.accuracy for row in rows if row.seed == 7] == [each.accuracy for each in own]
    assert len({tuple(row.accuracy for row in rows if row.seed == seed) for seed in (7, 8, 9)}) > 1
    first, *others = read_runs(out / "records.jsonl")
    assert first.artifacts
    assert [each.name for each in others] == [
        f"train serial, {name}" for name in ("twin", "seed 8", "seed 9")
    ]
    assert [each.params["seed"] for each in (first, *others)] == ["7", "7", "8", "9"]
    assert all(each.parent == first.uuid and not each.artifacts and each.model is None for each in others)
