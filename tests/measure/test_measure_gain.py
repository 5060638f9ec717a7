"""All of the advice against the default: two ways of one training, in blocks in turn, on real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_tasks import VectorTask, alone
from tiny_data import tiny_params

from parashot.parallel.registry import build_strategy
from parashot.parallel.strategy import StepOptions, Strategy
from parashot.parsing import Value
from parashot.questions.gain.measure import bench_gain
from parashot.questions.timed import rounds_of_launch, steps_with_loading
from parashot.questions.ways.records import EpisodeWay, WayBlock
from parashot.records import Provenance, read_json, read_rows, read_runs
from parashot.task import Batch

SETTINGS: dict[str, Value] = {
    "train.batchsz": 4,
    "augment.flip": True,  # left out: jpeg cannot have it
    "parallel.bench.blocks": 7,
    "parallel.bench.launches": 2,
    "parallel.bench.steps": 2,
    "parallel.bench.warmup_steps": 1,
}
WAYS = (
    EpisodeWay("default", "serial", 1, 1, 4, 0, "fp32", "none", "jpeg", "concat"),
    EpisodeWay("advised", "ddp", 2, 1, 4, 2, "fp32", "none", "packed", "split"),
)


@pytest.mark.usefixtures("standing_launch", "one_core")
def test_both_ways_train_as_many_episodes_in_every_round(tiny_packed: Path, tmp_path: Path) -> None:
    bench_gain(tiny_params(SETTINGS), tiny_packed, WAYS, tmp_path, Provenance({"seed": "3"}))
    assert tuple(read_rows(EpisodeWay, tmp_path / "ways.csv")) == WAYS
    blocks = read_rows(WayBlock, tmp_path / "blocks.csv")
    assert sorted((each.round, each.way) for each in blocks) == [
        (number, way) for number in range(7) for way in ("advised", "default")
    ]
    assert {each.launch for each in blocks} == {0, 1}
    assert {each.steps for each in blocks} == {2}
    assert all(0 <= each.waiting_seconds < each.seconds for each in blocks)
    metrics = read_json(tmp_path / "metrics.json")
    assert metrics["default"]["speedup"] == 1 and metrics["advised"]["speedup"] > 0
    parent, *children = read_runs(tmp_path / "records.jsonl")
    assert (parent.stage, parent.artifacts) == ("gain", ("ways.csv", "blocks.csv"))
    assert [each.params["strategy"] for each in children] == ["serial", "ddp"]


def test_without_advice_there_is_nothing_to_measure(tmp_path: Path) -> None:
    bench_gain(tiny_params(), tmp_path, (), tmp_path / "gain", Provenance())
    assert (
        read_rows(EpisodeWay, tmp_path / "gain/ways.csv")
        == read_rows(WayBlock, tmp_path / "gain/blocks.csv")
        == []
    )


def test_what_workers_had_ready_is_not_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the batches of a long training, the first, two that lay ready and one to warm up come before."""
    task = VectorTask()
    strategy = build_strategy("serial", task, StepOptions(), alone(), tiny_params().parallel)
    trained: list[Batch] = []
    step = Strategy.step
    monkeypatch.setattr(Strategy, "step", lambda self, batch: trained.append(batch) or step(self, batch))
    found = steps_with_loading(strategy, task, 3, threads=1, in_advance=2)
    every = list(task.batches(strategy.plan(8 * task.batchsz, task.batchsz, alone()), alone()))
    assert [each.data["x"].tolist() for each in trained] == [each.data["x"].tolist() for each in every[3:7]]
    assert 0 < found.waiting_seconds < found.seconds and found.memory_bytes >= 0


def test_launches_share_all_rounds_out() -> None:
    shares = [rounds_of_launch(8, each, 3) for each in range(3)]
    assert [list(each) for each in shares] == [[0, 1, 2], [3, 4, 5], [6, 7]]
