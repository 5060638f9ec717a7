"""The grid of loader workers: which counts are tried, and who trains meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_data import tiny_params

from parashot.parallel.context import Placement
from parashot.questions.loader import measure as loader_bench
from parashot.questions.loader.measure import loadings, who_trains, worker_counts
from parashot.questions.ways.episodes import read_by


def test_auto_follows_the_hardware_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    params = tiny_params({"loader.bench.workers": "auto"})
    for threads, counts in ((1, [0, 1, 2, 4]), (6, [0, 1, 2, 3, 6, 12, 21])):
        monkeypatch.setattr(loader_bench, "usable_threads", lambda count=threads: count)
        assert worker_counts(params, "jpeg") == counts
    assert worker_counts(params, "packed") == worker_counts(params, "resident") == [0]
    assert worker_counts(tiny_params({"loader.bench.workers": [5, 0, 3]}), "jpeg") == [0, 3, 5]


@pytest.mark.parametrize(
    ("threads", "ranks", "counts"), [(2, 2, [0, 2]), (6, 1, [0, 1, 3, 6]), (64, 4, [0, 4, 32, 64])]
)
def test_no_rank_trains_without_a_worker_where_others_have_one(
    monkeypatch: pytest.MonkeyPatch, threads: int, ranks: int, counts: list[int]
) -> None:
    monkeypatch.setattr(loader_bench, "usable_threads", lambda: threads)
    found = list(loadings(tiny_params({"loader.bench.workers": "auto"}), ranks))
    assert found == [*((name, each) for name in ("jpeg", "packed") for each in counts), ("resident", 0)]


@pytest.mark.usefixtures("one_core")
def test_who_trains_while_batches_are_loaded(tiny_packed: Path) -> None:
    assert who_trains(tiny_params({"parallel.replicas": "auto"}), tiny_packed)[0] == "serial"  # one is here
    assert who_trains(tiny_params(), tiny_packed) == ("ddp", Placement("cpu", 2, 1, 1))
    off = who_trains(tiny_params({"parallel.ddp.enabled": False}), tiny_packed)
    assert off == ("serial", Placement("cpu", 1, 1, 1))


def test_augmentation_is_left_out_since_jpeg_has_none() -> None:
    varied = tiny_params({"augment.flip": True})
    assert read_by(varied, "jpeg", 2) == tiny_params({"loader.backend": "jpeg", "loader.workers": 2})
