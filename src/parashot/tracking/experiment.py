"""The runs of one MLflow experiment, by uuid, and what can be done to them."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from parashot.errors import RecordError
from parashot.records import Run, now_ms

if TYPE_CHECKING:
    import mlflow.entities
    import numpy as np
    import numpy.typing as npt
    from mlflow import MlflowClient
    from torch import nn

UUID_TAG = "parashot.uuid"
PROCESS_TAG = "parashot.process"
PARENT_TAG = "mlflow.parentRunId"
NOTE_TAG = "mlflow.note.content"
USER_TAG = "mlflow.user"

_MOST_RUNS = 50_000  # of one search in MLflow
_CLOCK_SECONDS = 5.0  # a clock that is set right moves the start of every process


@dataclass(frozen=True)
class LoggableModel:
    """A network of one float32 array, and an example: a batch of 2, for MLflow freezes an axis of 1."""

    module: nn.Module
    input_example: npt.NDArray[np.float32]


class Experiment:
    """`runs` are MLflow's runs by uuid, deleted ones among them."""

    def __init__(self, client: MlflowClient, experiment_id: str) -> None:
        from mlflow.entities import ViewType

        self.id = experiment_id
        self._client = client
        found = client.search_runs([experiment_id], "", ViewType.ALL, _MOST_RUNS)
        self.runs: dict[str, mlflow.entities.Run] = {
            each.data.tags[UUID_TAG]: each for each in found if UUID_TAG in each.data.tags
        }

    def run_id(self, uuid: str) -> str:
        """MLflow's name for a run that is there."""
        return str(self.runs[uuid].info.run_id)

    def is_deleted(self, uuid: str) -> bool:
        """Whether the user has deleted the run in MLflow."""
        return uuid in self.runs and self.runs[uuid].info.lifecycle_stage == "deleted"

    def is_done(self, run: Run) -> bool:
        """Whether all of the run is there, or nothing of it is wanted; one that failed may have gone on."""
        there = self.runs.get(run.uuid)
        if there is None:
            return False
        closed = there.info.status in {"FINISHED", *(["FAILED"] if run.status == "failed" else [])}
        return self.is_deleted(run.uuid) or (closed and there.data.tags.get("status") != "unpublished")

    def is_under(self, uuid: str, parent: str) -> bool:
        """Whether the run was first published under `parent`."""
        return bool(self.runs[uuid].data.tags.get(PARENT_TAG) == self.run_id(parent))

    def open(self, run: Run, parent: str | None = None) -> None:
        """Make the run, or go on with it. Until it is closed, this process answers for it.

        `parent` is the uuid of the run above it, which counts where it has none yet.
        """
        there = self.runs.get(run.uuid)
        tags = {PROCESS_TAG: _this_process(), USER_TAG: psutil.Process().username()}
        if parent in self.runs and (there is None or PARENT_TAG not in there.data.tags):
            tags[PARENT_TAG] = self.run_id(parent)
        if there is None:
            tags[UUID_TAG] = run.uuid
            self.runs[run.uuid] = self._client.create_run(self.id, run.start_ms, tags, run.name)
        else:
            self.set_tags(run.uuid, tags)
            self._client.update_run(self.run_id(run.uuid), status="RUNNING")
            self.runs[run.uuid] = self._client.get_run(self.run_id(run.uuid))

    def write(self, run: Run) -> None:
        """Write tags, and the params and metrics that are not there yet."""
        from mlflow.entities import Metric, Param

        self.set_tags(run.uuid, _tags(run))
        run_id, there = self.run_id(run.uuid), self.runs[run.uuid].data
        params = [Param(key, value) for key, value in run.params.items() if key not in there.params]
        old = {
            (key, each.step) for key in there.metrics for each in self._client.get_metric_history(run_id, key)
        }
        end_ms = run.end_ms or now_ms()  # of a metric without a time of its own
        points = [
            Metric(each.key, each.value, each.time_ms or end_ms, each.step)
            for each in run.metrics
            if (each.key, each.step) not in old
        ]
        self._client.log_batch(run_id, points, params)

    def set_tags(self, uuid: str, tags: Mapping[str, str]) -> None:
        """Set or replace tags."""
        from mlflow.entities import RunTag

        self._client.log_batch(self.run_id(uuid), tags=[RunTag(key, value) for key, value in tags.items()])

    def attach(self, uuid: str, path: Path, folder: Path = Path()) -> None:
        """Copy a file or a folder into `folder` of the run's artifacts. Raises `RecordError`."""
        if not path.exists():
            raise RecordError(f"{path}: missing, but its record names it; run `dvc checkout` or `dvc repro`")
        self._client.log_artifact(
            self.run_id(uuid), str(path), None if folder == Path() else folder.as_posix()
        )

    def attach_model(self, uuid: str, model: LoggableModel) -> None:
        """Save the network in MLflow's format, and link it to the run when it is whole.

        MLflow's own `log_model` works on a global store, so its steps are taken here.
        """
        import mlflow.pytorch
        from mlflow.entities import LoggedModelOutput
        from mlflow.models import Model

        run_id = self.run_id(uuid)
        for half_way in self._client.search_logged_models([self.id], f"source_run_id = '{run_id}'"):
            self._client.delete_logged_model(half_way.model_id)
        model_id = self._client.create_logged_model(self.id, "model", source_run_id=run_id).model_id
        with tempfile.TemporaryDirectory() as folder:
            mlflow.pytorch.save_model(
                model.module.cpu().eval(),
                f"{folder}/model",
                input_example=model.input_example,
                pip_requirements=["torch"],
                mlflow_model=Model(run_id=run_id, model_id=model_id, model_uuid=model_id),
            )
            self._client.log_model_artifacts(model_id, f"{folder}/model")
        self._client.finalize_logged_model(model_id, "READY")
        self._client.log_outputs(run_id, [LoggedModelOutput(model_id, step=0)])

    def close(self, run: Run) -> None:
        """End the run as its record says; one that still runs stays open."""
        if run.status != "running":
            status = "FAILED" if run.status == "failed" else "FINISHED"
            self._client.set_terminated(self.run_id(run.uuid), status, run.end_ms)

    def close_abandoned(self) -> None:
        """Close as killed what a process of this machine opened that has gone."""
        for each in filter(_is_abandoned, self.runs.values()):
            last_ms = [each.info.start_time]
            for key in each.data.metrics:
                history = self._client.get_metric_history(each.info.run_id, key)
                last_ms += [point.timestamp for point in history]
            self._client.set_terminated(each.info.run_id, "KILLED", max(last_ms))


def _this_process() -> str:
    """Name this process; its pid alone is used again."""
    return f"{platform.node()}/{os.getpid()}/{psutil.Process().create_time()}"


def _is_abandoned(run: mlflow.entities.Run) -> bool:
    """Whether the process that opened the run ran on this machine and runs no longer."""
    host, pid, started = run.data.tags.get(PROCESS_TAG, "//").split("/")
    is_open = run.info.lifecycle_stage != "deleted" and run.info.status == "RUNNING"
    if not is_open or host != platform.node():
        return False
    try:
        process = psutil.Process(int(pid))
        is_another = abs(process.create_time() - float(started)) > _CLOCK_SECONDS
        return is_another or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _tags(run: Run) -> dict[str, str]:
    """Tags of a run; keys that begin with `mlflow.` fill columns of MLflow's pages."""
    reason = run.tags.get("reason")
    tags = {
        **run.tags,
        "stage": run.stage,
        "status": run.status,
        "mlflow.source.name": run.stage,
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": run.tags.get("git.commit", ""),
        NOTE_TAG: f"**{run.status}**: {reason}" if reason else "",
    }
    return {key: value for key, value in tags.items() if value}
