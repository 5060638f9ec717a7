"""A whole training by `train(Job(...))`, in miniature: what it writes, and what it leaves when it fails."""

from __future__ import annotations

import dataclasses
import json
import threading
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from parashot.data.batches import Batch
from parashot.train.evaluate import EpisodeSet, episode_accuracies, mean_and_ci95
from standing_ranks import StandingRanks
from tiny_data import EVALUATED, PACKED_EPISODES, tiny_params

from parashot.data.packed import PackedSplit
from parashot.model.network import build_network
from parashot.model.weights import load_network
from parashot.parallel.strategy import Strategy
from parashot.recipes import Value
from parashot.records import Run, read_json, read_result, read_rows, read_runs
from parashot.train.job import Job
from parashot.train.records import EpisodeAccuracy, HistoryRow, TrainResult
from parashot.train.run import train, train_rank

pytestmark = pytest.mark.usefixtures("one_core")
FILES = {"history.csv", "metrics.json", "model.pt", "records.jsonl", "result.json", "val_episodes.csv"}


@pytest.fixture
def job(tiny_packed: Path, tmp_path: Path) -> Job:
    return Job("serial", tiny_params(), tiny_packed, tmp_path / "out", {"source": "tiny"})


def turned(job: Job, settings: dict[str, Value], strategy: str = "serial", out: str = "out") -> Job:
    """The same job with some knobs turned."""
    return dataclasses.replace(
        job, strategy=strategy, params=tiny_params(settings), out=job.out.with_name(out)
    )


def run(job: Job) -> TrainResult:
    result = train(job)
    assert result is not None
    return result


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(("strategy", "replicas"), [("serial", 1), ("dp", 2)])
def test_the_folder_holds_all_there_is_to_know(job: Job, strategy: str, replicas: int) -> None:
    job = turned(job, {}, strategy)
    result = run(job)
    assert names(job.out) == FILES
    assert read_result(TrainResult, job.out / "result.json") == result
    assert (result.status, result.replicas, result.steps, result.episodes) == ("ok", replicas, 3, 7)
    assert result.ranks_identical

    history = read_rows(HistoryRow, job.out / "history.csv")
    assert [row.step for row in history] == [1, 2, 3]
    assert [row.episodes for row in history] == [3, 6, 7]
    assert [row.val_accuracy is not None for row in history] == [False, True, True]
    assert history[-1].val_accuracy == result.val_accuracy
    assert history[-1].seconds == pytest.approx(result.seconds)
    assert result.seconds == pytest.approx(sum(row.step_seconds for row in history))

    metrics = read_json(job.out / "metrics.json")
    assert metrics["val_accuracy"] == result.val_accuracy
    assert metrics["episodes_per_second"] == pytest.approx(7 / result.seconds)


def test_the_run_names_its_files_and_its_knobs(job: Job) -> None:
    result = run(job)
    (record,) = read_runs(job.out / "records.jsonl")
    assert (record.name, record.stage, record.status) == ("train serial", "train-serial", "ok")
    assert record.end_ms is not None
    assert record.end_ms >= record.start_ms
    assert set(record.artifacts) == FILES - {"metrics.json", "records.jsonl"}
    assert record.model == "model.pt"
    assert record.tags == {"source": "tiny", "strategy": "serial", "how": result.how}
    assert record.params["train.batchsz"] == "3"
    assert not any(key.startswith(("parallel.dp", "claims", "batchsz_study")) for key in record.params)
    losses = [(each.step, each.value) for each in record.metrics if each.key == "loss"]
    rows = read_rows(HistoryRow, job.out / "history.csv")
    assert losses == [(row.step, row.loss) for row in rows]


def check_reported_accuracy(job: Job, result: TrainResult) -> None:
    """The saved model, evaluated alone, has the accuracies that were written."""
    split = PackedSplit(job.packed, "val")
    network = load_network(job.out / "model.pt")
    measured = episode_accuracies(network, EpisodeSet(split, EVALUATED, split.episodes))
    written = read_rows(EpisodeAccuracy, job.out / "val_episodes.csv")
    assert [each.episode for each in written] == list(range(PACKED_EPISODES))
    np.testing.assert_allclose([each.accuracy for each in written], measured)
    assert (result.val_accuracy, result.val_accuracy_ci95) == pytest.approx(mean_and_ci95(measured))


def test_the_saved_model_is_trained_and_has_the_accuracy_that_was_reported(job: Job) -> None:
    check_reported_accuracy(job, run(job))
    network = load_network(job.out / "model.pt")
    untrained = build_network(job.params.model, job.params.seed).state_dict()
    assert any(not torch.equal(value, untrained[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize("strategy", ["serial", "dp", "ddp"])
def test_the_same_seed_gives_the_same_bytes_and_another_does_not(
    job: Job, strategy: str, ranks: StandingRanks
) -> None:
    first, second = turned(job, {}, strategy, "first"), turned(job, {}, strategy, "second")
    other = turned(job, {"seed": 4}, strategy, "other")
    for each in (first, second, other):
        if strategy == "ddp":
            ranks(2, train_rank, each)
        else:
            run(each)
    for name in ("model.pt", "val_episodes.csv"):
        assert (first.out / name).read_bytes() == (second.out / name).read_bytes()
    assert (first.out / "model.pt").read_bytes() != (other.out / "model.pt").read_bytes()


@pytest.mark.parametrize("strategy", ["serial", "dp"])
def test_steps_that_measure_memory_leave_no_trace(
    job: Job, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    models = []
    for steps in (0, 3):
        monkeypatch.setattr("parashot.train.run._MEMORY_STEPS", steps)
        each = turned(job, {}, strategy, f"after{steps}")
        run(each)
        models.append((each.out / "model.pt").read_bytes())
    assert models[0] == models[1]


def test_a_batch_for_each_rank_is_as_many_times_the_work(job: Job, ranks: StandingRanks) -> None:
    job = turned(job, {"train.batch_per": "rank", "train.batchsz": 2, "train.episodes": 5}, "ddp")
    result = ranks(2, train_rank, job)
    assert (result.replicas, result.batch_per) == (2, "rank")
    assert (result.batchsz, result.episodes, result.steps) == (4, 10, 3)
    assert result.ranks_identical
    assert names(job.out) == FILES
    assert [row.episodes for row in read_rows(HistoryRow, job.out / "history.csv")] == [4, 8, 10]
    check_reported_accuracy(job, result)


@pytest.mark.parametrize("strategy", ["allreduce", "fsdp", "layer_split", "channel_split"])
def test_every_way_to_split_trains_a_whole_network(job: Job, strategy: str, ranks: StandingRanks) -> None:
    job = turned(job, {f"parallel.{strategy}.enabled": True}, strategy)
    result = ranks(2, train_rank, job)
    assert (result.status, result.replicas, result.steps, result.episodes) == ("ok", 2, 3, 7)
    assert result.ranks_identical
    assert result.parameters == sum(each.numel() for each in load_network(job.out / "model.pt").parameters())
    assert names(job.out) == FILES
    check_reported_accuracy(job, result)


def test_a_lone_process_is_one_rank(job: Job) -> None:
    result = run(turned(job, {"train.batch_per": "rank"}, "dp"))
    assert (result.replicas, result.batchsz, result.episodes) == (2, 3, 7)


def test_a_small_batch_says_which_replicas_it_feeds(job: Job) -> None:
    result = run(turned(job, {"parallel.replicas": 4, "train.batchsz": 2}, "dp"))
    assert result.replicas == 2
    assert result.how.endswith("; batchsz 2 feeds only 2 of 4")


def test_what_is_switched_off_is_skipped_with_its_reason(job: Job) -> None:
    job = turned(job, {"parallel.dp.enabled": False}, "dp")
    reason = "parallel.dp.enabled is false"
    assert run(job) == TrainResult("dp", "skipped", reason)
    assert names(job.out) == {"history.csv", "metrics.json", "records.jsonl", "result.json"}
    assert read_rows(HistoryRow, job.out / "history.csv") == []
    assert read_json(job.out / "metrics.json") == {"skipped": 1}
    (record,) = read_runs(job.out / "records.jsonl")
    assert (record.status, record.tags["reason"], record.metrics) == ("skipped", reason, ())


LONG: dict[str, Value] = {"train.episodes": 30}  # 10 steps


def fail_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all steps after so many raise."""
    real, taken = Strategy.step, count()

    def failing(self: Strategy, batch: Batch) -> torch.Tensor:
        if next(taken) >= steps:
            raise RuntimeError("the device is lost")
        return real(self, batch)

    monkeypatch.setattr(Strategy, "step", failing)


@pytest.mark.parametrize("strategy", ["serial", "dp"])
def test_a_training_that_fails_leaves_nothing(
    job: Job, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    job = turned(job, LONG, strategy)
    fail_after(7, monkeypatch)
    with pytest.raises(RuntimeError, match="the device is lost") as failure:
        train(job)
    assert failure.tb is not None  # it keeps the training alive, so that no thread ends by chance
    assert names(job.out.parent) == set()
    assert not [each.name for each in threading.enumerate() if each.name.startswith("replica-")]


def test_an_earlier_folder_stays_until_the_new_one_is_whole(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.out.mkdir()
    (job.out / "of_another_version.csv").write_text("old")
    with monkeypatch.context() as patch:
        fail_after(7, patch)
        with pytest.raises(RuntimeError, match="the device is lost"):
            train(turned(job, LONG))
    assert names(job.out) == {"of_another_version.csv"}
    run(job)
    assert names(job.out) == FILES
    assert names(job.out.parent) == {"out"}


def test_who_watches_sees_the_run_grow(job: Job) -> None:
    seen: list[Run] = []
    job = turned(job, {"tracking.live_seconds": 0})
    run(dataclasses.replace(job, live=seen.append))
    (final,) = read_runs(job.out / "records.jsonl")
    assert [each.status for each in seen] == ["running", "running"]
    assert {each.uuid for each in seen} == {final.uuid}
    assert [max(metric.step for metric in each.metrics) for each in seen] == [2, 3]
    assert all(each.end_ms is None and not each.artifacts for each in seen)


def test_a_short_training_shows_up_at_its_end_only(job: Job) -> None:
    seen: list[Run] = []
    run(dataclasses.replace(job, live=seen.append))
    assert seen == []


def test_numbers_for_dvc_are_flat(job: Job) -> None:
    run(job)
    metrics = json.loads((job.out / "metrics.json").read_text(encoding="utf-8"))
    assert {type(value) for value in metrics.values()} <= {int, float}
