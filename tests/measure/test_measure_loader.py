"""The grid of loader workers: which counts, in which order, and what is written."""

from __future__ import annotations

import multiprocessing
from itertools import product
from pathlib import Path
from statistics import median

import pytest
from tiny_data import tiny_params

from parashot.questions.loader import measure as loader_bench
from parashot.questions.loader.measure import bench_loaders, worker_counts
from parashot.questions.loader.records import LoaderBlock
from parashot.records import Provenance, Run, read_json, read_rows, read_runs

ROUNDS, WORKERS = range(7), (0, 2)
SETTINGS = [*product(["packed"], WORKERS), ("resident", 0)]


@pytest.mark.parametrize(
    ("threads", "counts"),
    [(1, [0, 1, 2, 4]), (6, [0, 1, 2, 3, 6, 12, 21])],
)
def test_auto_follows_the_hardware_threads(
    monkeypatch: pytest.MonkeyPatch, threads: int, counts: list[int]
) -> None:
    monkeypatch.setattr(loader_bench, "usable_threads", lambda: threads)
    params = tiny_params({"loader.bench.workers": "auto"})
    assert worker_counts(params, "jpeg") == worker_counts(params, "packed") == counts
    assert worker_counts(params, "resident") == [0]
    assert worker_counts(tiny_params({"loader.bench.workers": [5, 0, 3]}), "packed") == [0, 3, 5]


@pytest.fixture(scope="module")
def benched(tiny_packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In a process of its own: the memory of a tree is measured, and this one has standing ranks below it."""
    out = tmp_path_factory.mktemp("loader") / "out"
    params = tiny_params({"loader.bench.backends": ["packed", "resident"]})
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
    assert set(metrics) == {f"{backend}-{workers}" for backend, workers in SETTINGS}
    for (backend, workers), found in zip(SETTINGS, metrics.values(), strict=True):
        mine = [each for each in blocks if (each.backend, each.workers) == (backend, workers)]
        rate = 2 / median(each.seconds / each.batches for each in mine)
        assert found["episodes_per_second"] == pytest.approx(rate)
        assert found["episodes_per_second_low"] <= rate <= found["episodes_per_second_high"]
        assert workers or found["speedup"] == 1


def test_a_parent_holds_a_run_of_every_setting(benched: Path, blocks: list[LoaderBlock]) -> None:
    parent, *children = read_runs(benched / "records.jsonl")
    assert (parent.stage, parent.parent, parent.artifacts) == ("loader-bench", None, ("blocks.csv",))
    assert {each.parent for each in children} == {parent.uuid}
    assert [setting(each) for each in children] == SETTINGS
    assert all(each.tags["source"] == "tiny" for each in (parent, *children))
    for each in children:
        mine = [block for block in blocks if (block.backend, block.workers) == setting(each)]
        found = [metric for metric in each.metrics if metric.key == "seconds_per_batch_block"]
        series = [(metric.step, metric.value) for metric in found]
        assert series == [(block.round, block.seconds / block.batches) for block in mine]


def setting(run: Run) -> tuple[str, int]:
    return run.params["backend"], int(run.params["workers"])
