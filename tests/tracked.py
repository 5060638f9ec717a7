"""A checkout with records and an MLflow store of its own, and processes that publish into it."""

from __future__ import annotations

import dataclasses
import shutil
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from parashot.records import Metric, Run, write_runs
from parashot.tracking import LoggableModel, Published, Store, StudyRun, publish


class Checkout:
    """A root with MLflow's store, a results folder, and a client that looks at the store."""

    def __init__(self, root: Path, database: Path | None) -> None:
        root.mkdir(exist_ok=True)
        if database is not None:
            shutil.copy(database, root / "mlflow.db")
        self.store = Store(root, "few shots")
        self.root = root
        self.models_loaded: list[Path] = []

    @cached_property
    def client(self) -> Any:
        """Made when it is first needed: MLflow keeps a database open that it has seen once."""
        from mlflow import MlflowClient

        return MlflowClient(tracking_uri=self.store.uri or f"sqlite:///{self.root / 'mlflow.db'}")

    def record(self, folder: str, *runs: Run) -> Path:
        """Write records.jsonl, and every artifact that is not there yet."""
        path = self.root / "results" / folder
        for run in runs:
            for artifact in run.artifacts:
                file = path / artifact
                file.parent.mkdir(parents=True, exist_ok=True)
                if not file.exists():
                    file.write_text(f"{artifact} of {run.name}")
        write_runs(path / "records.jsonl", runs)
        return path

    def publish(self, *folders: Path, study: StudyRun | None = None) -> Published:
        return publish(self.store, study or StudyRun("study"), folders, self.load_model)

    def load_model(self, path: Path) -> LoggableModel:
        self.models_loaded.append(path)
        return tiny_model()

    def runs(self) -> dict[str, Any]:
        """MLflow's runs by name; a name must not occur twice."""
        experiment = self.client.get_experiment_by_name(self.store.experiment)
        found = self.client.search_runs([experiment.experiment_id]) if experiment else []
        assert len({run.info.run_name for run in found}) == len(found)
        return {run.info.run_name: run for run in found}

    def points(self, name: str, key: str) -> list[tuple[int, float]]:
        history = self.client.get_metric_history(self.runs()[name].info.run_id, key)
        return [(point.step, point.value) for point in history]

    def files(self, name: str) -> list[str]:
        folder = Path(self.runs()[name].info.artifact_uri.removeprefix("file://").replace("%20", " "))
        return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())


def refusing_address() -> str:
    """Where nobody listens: a port that no program is given."""
    return "http://127.0.0.1:1"


def tiny_model() -> LoggableModel:
    """A network of the right kind: one array in, one out."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 2), nn.BatchNorm1d(2), nn.Sigmoid())
    return LoggableModel(module, np.linspace(0, 1, 24, dtype=np.float32).reshape(2, 3, 4))


def a_run(name: str, **changes: Any) -> Run:
    run = Run(
        name=name,
        stage="train",
        status="ok",
        start_ms=1_000,
        end_ms=61_000,
        params={"train.batchsz": "30", "model.embedding": "conv4"},
        tags={"strategy": name, "git.commit": "c0ffee", "dvc.experiment": ""},
        metrics=(Metric("loss", 0.5, 1, 2_000), Metric("loss", 0.25, 2, 3_000), Metric("seconds", 60.0)),
    )
    return dataclasses.replace(run, uuid=f"uuid-{name}", **changes)
