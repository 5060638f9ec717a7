"""A whole training, in miniature: what it writes, and what it leaves when it fails."""

from __future__ import annotations

import threading
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from standing_ranks import StandingRanks
from tiny_data import EVALUATED, PACKED_EPISODES, tiny_params

from parashot.model.network import build_network
from parashot.model.weights import load_network
from parashot.parallel.registry import STRATEGIES
from parashot.parallel.strategy import Strategy
from parashot.recipes import Value
from parashot.records import Provenance, Run, read_json, read_result, read_rows, read_runs
from parashot.task import Batch, mean_and_ci95
from parashot.tasks.evaluation import draw_split, episode_accuracies
from parashot.train.job import Job, episode_job
from parashot.train.records import EpisodeAccuracy, HistoryRow, TrainResult
from parashot.train.run import train, train_rank
from parashot.train.skipped import skip

pytestmark = pytest.mark.usefixtures("one_core")
FILES = {
    "history.csv",
    "metrics.json",
    "model.safetensors",
    "records.jsonl",
    "result.json",
    "val_episodes.csv",
}
PROVENANCE = Provenance({"train.batchsz": "3"}, {"source": "tiny"})


class Jobs:
    """Trainings on the tiny data, in a folder of their own."""

    def __init__(self, packed: Path, folder: Path) -> None:
        self.packed, self.folder = packed, folder
        self.seen: list[Run] = []

    def __call__(self, strategy: str = "serial", out: str = "out", **settings: Value) -> Job:
        params = tiny_params({key.replace("__", "."): value for key, value in settings.items()})
        return episode_job(
            strategy, params, self.packed, self.folder / out, PROVENANCE, live=self.seen.append
        )


@pytest.fixture
def job(tiny_packed: Path, tmp_path: Path) -> Jobs:
    return Jobs(tiny_packed, tmp_path)


def run(job: Job, ranks: StandingRanks | None = None) -> TrainResult:
    single = STRATEGIES[job.strategy].processes(2) == 1
    result = train(job) if single or ranks is None else ranks(2, train_rank, job)
    assert isinstance(result, TrainResult)
    return result


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def check_reported_accuracy(job: Job, packed: Path, result: TrainResult) -> None:
    """The saved model, evaluated alone, has the accuracies that were written, by however many ranks."""
    network = load_network(job.out / "model.safetensors")
    measured = episode_accuracies(network, draw_split(packed, "val", EVALUATED, PACKED_EPISODES, 3))
    written = read_rows(EpisodeAccuracy, job.out / "val_episodes.csv")
    assert [each.episode for each in written] == list(range(PACKED_EPISODES))
    np.testing.assert_allclose([each.accuracy for each in written], measured)
    assert (result.val_accuracy, result.val_accuracy_ci95) == pytest.approx(mean_and_ci95(measured))
    assert result.parameters == sum(each.numel() for each in network.parameters())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_folder_holds_all_there_is_to_know(job: Jobs, strategy: str, ranks: StandingRanks) -> None:
    described = job(strategy)
    result = run(described, ranks)
    replicas = 1 if strategy == "serial" else 2
    assert names(described.out) == FILES
    assert read_result(TrainResult, described.out / "result.json") == result
    assert (result.status, result.replicas, result.steps, result.items) == ("ok", replicas, 3, 7)
    assert result.ranks_identical
    check_reported_accuracy(described, job.packed, result)

    history = read_rows(HistoryRow, described.out / "history.csv")
    assert [(row.step, row.items) for row in history] == [(1, 3), (2, 6), (3, 7)]
    assert [row.val_accuracy is not None for row in history] == [False, True, True]
    assert history[-1].val_accuracy == result.val_accuracy
    assert history[-1].seconds == pytest.approx(result.seconds)
    assert result.seconds == pytest.approx(sum(row.step_seconds for row in history))

    metrics = read_json(described.out / "metrics.json")
    assert metrics["val_accuracy"] == result.val_accuracy
    assert metrics["items_per_second"] == pytest.approx(7 / history[-1].seconds)
    assert {type(value) for value in metrics.values()} <= {int, float}


def test_the_run_names_its_files_and_its_knobs(job: Jobs) -> None:
    described = job()
    result = run(described)
    (record,) = read_runs(described.out / "records.jsonl")
    assert (record.name, record.stage, record.status) == ("train serial", "train-serial", "ok")
    assert record.end_ms is not None and record.end_ms >= record.start_ms
    assert set(record.artifacts) == FILES - {"metrics.json", "records.jsonl"}
    assert record.model == "model.safetensors"
    assert record.tags == {"source": "tiny", "strategy": "serial", "how": result.how}
    assert record.params == {"train.batchsz": "3"}
    losses = [(each.step, each.value) for each in record.metrics if each.key == "loss"]
    assert losses == [(row.step, row.loss) for row in read_rows(HistoryRow, described.out / "history.csv")]
    untrained = build_network(tiny_params().model, 3).state_dict()
    trained = load_network(described.out / "model.safetensors").state_dict()
    assert any(not torch.equal(value, untrained[name]) for name, value in trained.items())


@pytest.mark.parametrize("strategy", ["serial", "dp", "ddp"])
def test_the_same_seed_gives_the_same_bytes_and_another_does_not(
    job: Jobs, strategy: str, ranks: StandingRanks
) -> None:
    first, second, other = (
        job(strategy, out, seed=seed) for out, seed in (("first", 3), ("second", 3), ("other", 4))
    )
    for each in (first, second, other):
        run(each, ranks)
    for name in ("model.safetensors", "val_episodes.csv"):
        assert (first.out / name).read_bytes() == (second.out / name).read_bytes()
    assert (first.out / "model.safetensors").read_bytes() != (other.out / "model.safetensors").read_bytes()


@pytest.mark.parametrize("strategy", ["serial", "dp"])
def test_steps_that_measure_memory_leave_no_trace(
    job: Jobs, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    models = []
    for steps in (0, 3):
        monkeypatch.setattr("parashot.train.run._MEMORY_STEPS", steps)
        described = job(strategy, f"after{steps}")
        run(described)
        models.append((described.out / "model.safetensors").read_bytes())
    assert models[0] == models[1]


def test_a_batch_for_each_rank_is_as_many_times_the_work(job: Jobs, ranks: StandingRanks) -> None:
    described = job("ddp", train__batch_per="rank", train__batchsz=2, train__episodes=5)
    result = run(described, ranks)
    assert (result.replicas, result.batch_per) == (2, "rank")
    assert (result.batchsz, result.items, result.steps) == (4, 10, 3)
    assert [row.items for row in read_rows(HistoryRow, described.out / "history.csv")] == [4, 8, 10]
    check_reported_accuracy(described, job.packed, result)
    lone = run(job("dp", "lone", train__batch_per="rank"))  # one process is one rank
    assert (lone.replicas, lone.batchsz, lone.items) == (2, 3, 7)


def test_a_small_batch_says_which_replicas_it_feeds(job: Jobs) -> None:
    result = run(job("dp", parallel__replicas=4, train__batchsz=2))
    assert result.replicas == 2
    assert result.how.endswith("; batchsz 2 feeds only 2 of 4")


@pytest.mark.parametrize("by", ["the stage", "the machine"])
def test_what_is_not_run_is_skipped_with_its_reason(job: Jobs, by: str) -> None:
    described = job("layer_split", parallel__replicas=3)
    if by == "the stage":
        reason = "parallel.layer_split.enabled is false"
        result = skip(described.stage, "layer_split", reason, described.out, PROVENANCE)
    else:
        reason = "layer_split has 2 parts for 2 devices, not 3; set parallel.replicas=2"
        result = run(described)
    assert result == TrainResult("layer_split", "skipped", reason)
    assert names(described.out) == {"history.csv", "metrics.json", "records.jsonl", "result.json"}
    assert read_rows(HistoryRow, described.out / "history.csv") == []
    assert read_json(described.out / "metrics.json") == {"skipped": 1}
    (record,) = read_runs(described.out / "records.jsonl")
    assert (record.status, record.tags["reason"], record.metrics) == ("skipped", reason, ())
    assert record.params == {"train.batchsz": "3"}


def fail_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all steps after so many raise."""
    real, taken = Strategy.step, count()

    def failing(self: Strategy, batch: Batch) -> torch.Tensor:
        if next(taken) >= steps:
            raise RuntimeError("the device is lost")
        return real(self, batch)

    monkeypatch.setattr(Strategy, "step", failing)


@pytest.mark.parametrize("strategy", ["serial", "dp"])
def test_a_training_that_fails_leaves_what_was_there(
    job: Jobs, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    described = job(strategy, train__episodes=30)
    described.out.mkdir()
    (described.out / "of_another_version.csv").write_text("old")
    with monkeypatch.context() as patch:
        fail_after(7, patch)
        with pytest.raises(RuntimeError, match="the device is lost") as failure:
            train(described)
    assert failure.tb is not None  # it keeps the training alive, so that no thread ends by chance
    assert names(described.out) == {"of_another_version.csv"}
    assert not [each.name for each in threading.enumerate() if each.name.startswith("replica-")]
    run(job(strategy))
    assert names(described.out) == FILES
    assert names(described.out.parent) == {"out"}


def test_a_run_is_shown_while_it_grows(job: Jobs) -> None:
    described = job(tracking__live_seconds=0)
    run(described)
    (final,) = read_runs(described.out / "records.jsonl")
    assert [each.status for each in job.seen] == ["running", "running"]
    assert {each.uuid for each in job.seen} == {final.uuid}
    assert [max(metric.step for metric in each.metrics) for each in job.seen] == [2, 3]
    assert all(each.end_ms is None and not each.artifacts for each in job.seen)


def test_a_short_training_shows_up_at_its_end_only(job: Jobs) -> None:
    run(job())
    assert job.seen == []
