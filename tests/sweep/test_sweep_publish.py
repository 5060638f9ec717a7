"""Runs of a sweep reach MLflow once, under a study of their own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tiny_data import tiny_params

from parashot.records import Run, write_runs
from parashot.tracking import Store
from stages import publish


def published(store: Store) -> dict[str, str]:
    """MLflow's runs, and under which one each stands."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{store.root / 'mlflow.db'}")
    experiment = client.get_experiment_by_name(store.experiment)
    runs = client.search_runs([experiment.experiment_id]) if experiment else []
    names = {run.info.run_id: run.info.run_name for run in runs}
    assert len(set(names.values())) == len(names)
    return {run.info.run_name: names.get(run.data.tags.get("mlflow.parentRunId"), "") for run in runs}


def test_runs_of_a_sweep_are_published_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.chdir(tmp_path)
    store = Store(tmp_path, "few shots")
    monkeypatch.setattr(publish, "store", lambda settings: store)
    publish.publish_sweeps(tiny_params())
    assert not (tmp_path / "mlflow.db").exists()  # there is no sweep
    for number in range(2):
        run = Run(f"seed={number}", "sweep", "ok", 1_000, 2_000)
        write_runs(publish.SWEEPS / f"key{number}" / "records.jsonl", [run])
    for _ in range(2):
        publish.publish_sweeps(tiny_params())
        study = "sweep on synthetic data"
        assert published(store) == {study: "", "seed=0": study, "seed=1": study}
