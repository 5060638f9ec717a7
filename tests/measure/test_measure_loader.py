"""The grid of loader workers: which counts, in which order, and what is written."""

from __future__ import annotations

import multiprocessing
from itertools import product
from pathlib import Path
from statistics import median

import pytest
from tiny_data import tiny_params

from parashot.parallel.context import Placement
from parashot.parsing import Value
from parashot.questions.loader import measure as loader_bench
from parashot.questions.loader import training
from parashot.questions.loader.measure import bench_loaders, worker_counts
from parashot.questions.loader.records import LoaderBlock
from parashot.questions.loader.training import loadings, who_trains
from parashot.questions.ways.episodes import read_by
from parashot.questions.ways.records import EpisodeWay, WayBlock
from parashot.records import Provenance, Run, read_json, read_rows, read_runs
from parashot.train.records import Choices

SETTINGS_OF_BENCH: dict[str, Value] = {
    "loader.bench.backends": ["jpeg", "resident"],
    "parallel.bench.launches": 1,
    "parallel.bench.blocks": 7,
    "parallel.bench.steps": 1,
    "model.pairing": "split",
    "train.precision": "fp32",
    "train.compile": "none",
}
ROUNDS, WORKERS = range(7), (0, 2)
SETTINGS = [*product(["jpeg"], WORKERS), ("resident", 0)]


@pytest.mark.parametrize(
    ("threads", "counts"),
    [(1, [0, 1, 2, 4]), (6, [0, 1, 2, 3, 6, 12, 21])],
)
def test_auto_follows_the_hardware_threads(
    monkeypatch: pytest.MonkeyPatch, threads: int, counts: list[int]
) -> None:
    monkeypatch.setattr(loader_bench, "usable_threads", lambda: threads)
    params = tiny_params({"loader.bench.workers": "auto"})
    assert worker_counts(params, "jpeg") == counts
    assert worker_counts(params, "packed") == worker_counts(params, "resident") == [0]
    assert worker_counts(tiny_params({"loader.bench.workers": [5, 0, 3]}), "jpeg") == [0, 3, 5]


@pytest.mark.parametrize(
    ("threads", "ranks", "counts"),
    [(1, 1, [0, 1]), (2, 2, [0, 2]), (6, 1, [0, 1, 3, 6]), (64, 4, [0, 4, 32, 64])],
)
def test_no_rank_trains_without_a_worker_where_others_have_one(
    monkeypatch: pytest.MonkeyPatch, threads: int, ranks: int, counts: list[int]
) -> None:
    monkeypatch.setattr(training, "usable_threads", lambda: threads)
    found = list(loadings(tiny_params({"loader.bench.workers": "auto"}), ranks))
    decoded = [("jpeg", each) for each in counts]
    assert found == [*decoded, *(("packed", each) for each in counts), ("resident", 0)]


@pytest.fixture(scope="module")
def benched(tiny_packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In a process of its own: the memory of a tree is measured, and this one has standing ranks below it."""
    out = tmp_path_factory.mktemp("loader") / "out"
    params = tiny_params(SETTINGS_OF_BENCH)
    arguments = (params, tiny_packed, out, Provenance({}, {"source": "tiny"}))
    process = multiprocessing.get_context("spawn").Process(target=bench_loaders, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == 0
    return out


@pytest.fixture(scope="module")
def blocks(benched: Path) -> list[LoaderBlock]:
    return read_rows(LoaderBlock, benched / "blocks.csv")


def test_every_round_has_a_block_of_every_setting(blocks: list[LoaderBlock]) -> None:
    found = [(each.round, (each.backend, each.workers)) for each in blocks]
    assert sorted(found) == list(product(ROUNDS, SETTINGS))
    assert [number for number, _ in found] == [number for number in ROUNDS for _ in SETTINGS]
    assert {each.batchsz for each in blocks} == {2}
    assert all(each.batches >= max(1, each.workers) for each in blocks)
    assert all(each.seconds > 0 and each.first_batch_seconds > 0 for each in blocks)
    without, two = (median(each.memory_bytes for each in blocks if each.workers == n) for n in WORKERS)
    assert two > without


def test_metrics_are_nested_by_setting(benched: Path, blocks: list[LoaderBlock]) -> None:
    metrics = read_json(benched / "metrics.json")
    names = [f"{backend}-{workers}" for backend, workers in SETTINGS]
    assert set(metrics) == {*names, *(f"training-{each}" for each in names)}
    for (backend, workers), name in zip(SETTINGS, names, strict=True):
        found = metrics[name]
        mine = [each for each in blocks if (each.backend, each.workers) == (backend, workers)]
        rate = 2 / median(each.seconds / each.batches for each in mine)
        assert found["episodes_per_second"] == pytest.approx(rate)
        assert found["episodes_per_second_low"] <= rate <= found["episodes_per_second_high"]
        assert workers or found["speedup"] == 1


def test_a_parent_holds_a_run_of_every_setting(benched: Path, blocks: list[LoaderBlock]) -> None:
    parent, *children = read_runs(benched / "records.jsonl")
    assert (parent.stage, parent.parent, parent.artifacts) == (
        "loader-bench",
        None,
        ("blocks.csv", "ways.csv", "training.csv"),
    )
    assert {each.parent for each in children} == {parent.uuid}
    assert [setting(each) for each in children] == [*SETTINGS, *SETTINGS]
    assert all(each.tags["source"] == "tiny" for each in (parent, *children))
    for each in children[len(SETTINGS) :]:
        mine = [block for block in blocks if (block.backend, block.workers) == setting(each)]
        found = [metric for metric in each.metrics if metric.key == "seconds_per_batch_block"]
        series = [(metric.step, metric.value) for metric in found]
        assert series == [(block.round, block.seconds / block.batches) for block in mine]


def setting(run: Run) -> tuple[str, int]:
    return run.params["backend"], int(run.params["workers"])


def test_steps_are_trained_with_every_way_of_loading(benched: Path) -> None:
    ways = {each.way: each for each in read_rows(EpisodeWay, benched / "ways.csv")}
    assert [each.loading for each in ways.values()] == SETTINGS
    assert {(each.strategy, each.replicas, each.computing) for each in ways.values()} == {
        ("ddp", 2, Choices("split", "fp32", "none"))
    }
    blocks = read_rows(WayBlock, benched / "training.csv")
    assert sorted((each.round, each.way) for each in blocks) == list(product(ROUNDS, sorted(ways)))
    orders = {tuple(each.way for each in blocks if each.round == number) for number in ROUNDS}
    assert len(orders) > 1  # random within a round
    assert all(0 <= each.waiting_seconds < each.seconds and each.steps == 1 for each in blocks)
    without, two = (
        median(each.memory_bytes for each in blocks if ways[each.way].workers == n) for n in WORKERS
    )
    assert two > without


@pytest.mark.usefixtures("one_core")
def test_who_trains_while_batches_are_loaded(tiny_packed: Path) -> None:
    assert who_trains(tiny_params({"parallel.replicas": "auto"}), tiny_packed)[0] == "serial"  # one is here
    assert who_trains(tiny_params(), tiny_packed) == ("ddp", Placement("cpu", 2, 1, 1))
    off = who_trains(tiny_params({"parallel.ddp.enabled": False}), tiny_packed)
    assert off == ("serial", Placement("cpu", 1, 1, 1))


def test_augmentation_is_left_out_since_jpeg_has_none() -> None:
    varied = tiny_params({"augment.flip": True})
    assert read_by(varied, "jpeg", 2) == tiny_params({"loader.backend": "jpeg", "loader.workers": 2})
