"""`watch` says where the time of a script's loop goes, and changes nothing in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from time import sleep

import pytest
from torch.utils.data import DataLoader

from parashot import watch
from parashot.doctor.watch import to_try


def slow(count: int, seconds: float) -> Iterator[int]:
    for each in range(count):
        sleep(seconds)
        yield each


@pytest.mark.parametrize("count", [0, 1, 5])
def test_the_batches_are_those_of_the_loader(count: int) -> None:
    told: list[str] = []
    assert list(watch(range(count), tell=told.append)) == [*range(count)]
    assert len(told) == (2 if count > 1 else 0)


def test_it_tells_a_slow_loader_from_slow_computing() -> None:
    told: list[str] = []
    list(watch(slow(4, 0.02), tell=told.append))
    for _ in watch(range(4), tell=told.append):
        sleep(0.02)
    assert "waiting for data (3 steps)" in told[0] and "the loader is the bottleneck" in told[1]
    assert "computing is the bottleneck" in told[3]


@pytest.mark.parametrize(("every", "last", "steps"), [(2, 6, [2, 4, 6]), (4, 6, [4, 6]), (0, 4, [4])])
def test_it_reports_every_so_often_and_at_the_end(every: int, last: int, steps: list[int]) -> None:
    """Also where the loop is left early."""
    told: list[str] = []
    loader: DataLoader[int] = DataLoader(range(7), batch_size=None)  # type: ignore[arg-type]
    for each in watch(loader, every=every, tell=told.append):
        if each == last < 6:
            break
    assert [each.partition("(")[2] for each in told[::2]] == [f"{count} steps)" for count in steps]


def test_what_to_try_depends_on_the_loader() -> None:
    assert "num_workers=1" in to_try(0.5, 0)
    assert "more than num_workers=2" in to_try(0.1, 2)
    assert "DataLoader" in to_try(0.5, None)


def test_an_active_run_gets_the_share(
    tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    database = shutil.copy(empty_database, tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{database}")
    with mlflow.start_run() as run:
        list(watch(range(5), tell=lambda line: None))
    found = mlflow.MlflowClient().get_run(run.info.run_id).data.metrics
    assert set(found) == {"step_seconds", "waiting_share"} and 0 <= found["waiting_share"] <= 1
