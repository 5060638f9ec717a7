"""What the smallest study timed: loader workers, and all of the advice against the default."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from statistics import median

import pytest
from checkouts import Checkout

from parashot.questions.loader.records import LoaderBlock
from parashot.questions.ways.records import EpisodeWay, WayBlock
from parashot.records import Run, read_json, read_result, read_rows, read_runs
from parashot.train.records import Choices

pytestmark = pytest.mark.timeout(900)

ROUNDS, WORKERS = range(7), (0, 2)
ALONE = [*product(["jpeg"], WORKERS), ("packed", 0), ("resident", 0)]
"""Settings of loading alone: backend and workers."""

IN_TRAINING = [*product(["jpeg", "packed"], WORKERS), ("resident", 0)]


@pytest.fixture(scope="module")
def loader(studied: Checkout) -> Path:
    return studied.root / "results/loader"


@pytest.fixture(scope="module")
def blocks(loader: Path) -> list[LoaderBlock]:
    return read_rows(LoaderBlock, loader / "blocks.csv")


@pytest.fixture(scope="module")
def chosen(studied: Checkout) -> Choices:
    """What `tune` has chosen."""
    return read_result(Choices, studied.root / "results/choices.json")


def test_every_round_has_a_block_of_every_setting(blocks: list[LoaderBlock]) -> None:
    found = [(each.round, (each.backend, each.workers)) for each in blocks]
    assert sorted(found) == list(product(ROUNDS, ALONE))
    assert [number for number, _ in found] == [number for number in ROUNDS for _ in ALONE]
    assert {each.batchsz for each in blocks} == {2}
    assert all(each.batches >= max(1, each.workers) for each in blocks)
    assert all(each.seconds > 0 and each.first_batch_seconds > 0 for each in blocks)
    without, two = (median(each.memory_bytes for each in blocks if each.workers == n) for n in WORKERS)
    assert two > without


def test_metrics_are_nested_by_setting(loader: Path, blocks: list[LoaderBlock]) -> None:
    metrics = read_json(loader / "metrics.json")
    assert set(metrics) == {*map(name_of, ALONE), *(f"training-{name_of(each)}" for each in IN_TRAINING)}
    for setting in ALONE:
        found = metrics[name_of(setting)]
        mine = [each for each in blocks if (each.backend, each.workers) == setting]
        rate = 2 / median(each.seconds / each.batches for each in mine)
        assert found["episodes_per_second"] == pytest.approx(rate)
        assert found["episodes_per_second_low"] <= rate <= found["episodes_per_second_high"]
        assert setting[1] or found["speedup"] == 1


def test_a_parent_holds_a_run_of_every_setting(loader: Path, blocks: list[LoaderBlock]) -> None:
    parent, *children = read_runs(loader / "records.jsonl")
    artifacts = ("blocks.csv", "ways.csv", "training.csv")
    assert (parent.stage, parent.parent, parent.artifacts) == ("loader-bench", None, artifacts)
    assert {each.parent for each in children} == {parent.uuid}
    assert [setting_of(each) for each in children] == [*IN_TRAINING, *ALONE]
    assert len({each.tags["hardware"] for each in (parent, *children)}) == 1
    for each in children[len(IN_TRAINING) :]:
        mine = [block for block in blocks if (block.backend, block.workers) == setting_of(each)]
        found = [metric for metric in each.metrics if metric.key == "seconds_per_batch_block"]
        series = [(metric.step, metric.value) for metric in found]
        assert series == [(block.round, block.seconds / block.batches) for block in mine]


def test_steps_are_trained_with_every_way_of_loading(loader: Path, chosen: Choices) -> None:
    ways = {each.way: each for each in read_rows(EpisodeWay, loader / "ways.csv")}
    assert [each.loading for each in ways.values()] == IN_TRAINING
    found = {(each.strategy, each.replicas, each.computing) for each in ways.values()}
    assert found == {("ddp", 2, chosen)}
    blocks = read_rows(WayBlock, loader / "training.csv")
    assert sorted((each.round, each.way) for each in blocks) == list(product(ROUNDS, sorted(ways)))
    orders = {tuple(each.way for each in blocks if each.round == number) for number in ROUNDS}
    assert len(orders) > 1  # random within a round
    assert all(0 <= each.waiting_seconds < each.seconds and each.steps == 1 for each in blocks)
    without, two = (
        median(each.memory_bytes for each in blocks if ways[each.way].workers == n) for n in WORKERS
    )
    assert two > without


def test_both_ways_of_the_gain_train_as_many_episodes_in_every_round(
    studied: Checkout, chosen: Choices
) -> None:
    gain = studied.root / "results/gain"
    default, advised = read_rows(EpisodeWay, gain / "ways.csv")
    assert (default.way, default.strategy, default.replicas) == ("default", "serial", 1)
    assert default.computing == Choices("concat", "fp32", "none")
    assert (advised.way, advised.computing) == ("advised", chosen)
    assert default.batchsz == advised.batchsz == 4
    blocks = read_rows(WayBlock, gain / "blocks.csv")
    assert sorted((each.round, each.way) for each in blocks) == list(product(ROUNDS, ["advised", "default"]))
    assert {(each.launch, each.steps) for each in blocks} == {(0, 1)}
    assert all(0 <= each.waiting_seconds < each.seconds for each in blocks)
    metrics = read_json(gain / "metrics.json")
    assert metrics["default"]["speedup"] == 1 and metrics["advised"]["speedup"] > 0
    parent, *children = read_runs(gain / "records.jsonl")
    assert (parent.stage, parent.artifacts) == ("gain", ("ways.csv", "blocks.csv"))
    assert [each.params["strategy"] for each in children] == ["serial", advised.strategy]


def name_of(setting: tuple[str, int]) -> str:
    return "{}-{}".format(*setting)


def setting_of(run: Run) -> tuple[str, int]:
    return run.params["backend"], int(run.params["workers"])
