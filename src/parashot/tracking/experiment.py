"""The runs of one MLflow experiment, found by their uuid, and what can be done to them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parashot.errors import RecordError
from parashot.records import Metric, Run, now_ms
from parashot.tracking.description import describe
from parashot.tracking.process import ProcessIdentity
from parashot.tracking.study import Row

if TYPE_CHECKING:
    import mlflow.entities
    import numpy as np
    import numpy.typing as npt
    from mlflow import MlflowClient
    from torch import nn

UUID_TAG = "parashot.uuid"
PROCESS_TAG = "parashot.process"
PARENT_TAG = "mlflow.parentRunId"

_STATUS = {"ok": "FINISHED", "skipped": "FINISHED", "stopped": "FINISHED", "failed": "FAILED"}
_METRICS_PER_CALL, _PARAMS_PER_CALL = 1000, 100  # limits of MLflow's REST interface


@dataclass(frozen=True)
class LoggableModel:
    """A network that takes one float32 array, and an example of it; the leading axis is the batch."""

    module: nn.Module
    input_example: npt.NDArray[np.float32]


class Experiment:
    """`runs` are MLflow's runs by uuid; `made` are the uuids of those that this object has made."""

    def __init__(self, client: MlflowClient, experiment_id: str) -> None:
        self.id = experiment_id
        self.made: set[str] = set()
        self._client = client
        self.runs: dict[str, mlflow.entities.Run] = {}
        for each in self._search():
            if uuid := each.data.tags.get(UUID_TAG):
                self.runs[uuid] = self._one_of(self.runs[uuid], each) if uuid in self.runs else each

    def is_deleted(self, uuid: str) -> bool:
        """Whether the user has deleted the run in MLflow."""
        return uuid in self.runs and self.runs[uuid].info.lifecycle_stage == "deleted"

    def is_done(self, uuid: str) -> bool:
        """Whether all of the run is there, or nothing of it is wanted."""
        return self.is_deleted(uuid) or (
            uuid in self.runs and self.runs[uuid].info.status in _STATUS.values()
        )

    def tag(self, uuid: str, key: str) -> str | None:
        """A tag of a run that is there."""
        value: str | None = self.runs[uuid].data.tags.get(key)
        return value

    def table(self, runs: Iterable[Run], under: str) -> list[Row]:
        """Where each of `runs` stands, as seen from the study `under`."""
        study_id = self._id(under)
        return [
            Row(run, self._id(run.uuid), run.parent is None and self.tag(run.uuid, PARENT_TAG) != study_id)
            for run in runs
        ]

    def open(self, run: Run, under: str | None = None) -> None:
        """Make the run, or go on with it. Until it is closed, this process answers for it.

        `under` is the uuid of the run above it, which counts where it has none yet.
        """
        tags = {PROCESS_TAG: str(ProcessIdentity.current())}
        if under in self.runs and (run.uuid not in self.runs or self.tag(run.uuid, PARENT_TAG) is None):
            tags[PARENT_TAG] = self._id(under)
        if run.uuid in self.runs:
            self.set_tags(run, tags)
            self._client.update_run(self._id(run.uuid), status="RUNNING")
            self._look_again(run)
        else:
            tags[UUID_TAG] = run.uuid
            self.runs[run.uuid] = self._client.create_run(self.id, run.start_ms, tags, run.name)
            self.made.add(run.uuid)

    def write(self, run: Run, replace: bool = False) -> None:
        """Write tags, params, and metrics: those of steps that have none yet, or all, to `replace` them."""
        from mlflow.entities import Metric as Point
        from mlflow.entities import Param

        self.set_tags(run, _tags(run))
        run_id, there = self._id(run.uuid), self.runs[run.uuid].data
        params = [Param(key, value) for key, value in run.params.items() if key not in there.params]
        for some in _chunks(params, _PARAMS_PER_CALL):
            self._client.log_batch(run_id, params=some)
        old = {
            (key, each.step) for key in there.metrics for each in self._client.get_metric_history(run_id, key)
        }
        new = run.metrics if replace else [each for each in run.metrics if (each.key, each.step) not in old]
        points = [Point(each.key, each.value, _time_ms(each, run), each.step) for each in new]
        for some in _chunks(points, _METRICS_PER_CALL):
            self._client.log_batch(run_id, metrics=some)

    def set_tags(self, run: Run, tags: Mapping[str, str]) -> None:
        """Set or replace tags."""
        from mlflow.entities import RunTag

        self._client.log_batch(self._id(run.uuid), tags=[RunTag(key, value) for key, value in tags.items()])

    def attach(self, run: Run, path: Path, name: Path) -> None:
        """Copy a file or a folder, to be `name` among the run's artifacts."""
        if path.is_dir():
            self._client.log_artifacts(self._id(run.uuid), str(path), name.as_posix())
        elif path.is_file():
            folder = None if name.parent == Path() else name.parent.as_posix()
            self._client.log_artifact(self._id(run.uuid), str(path), folder)
        else:
            raise RecordError(f"{path}: missing, but its record names it; run `dvc checkout` or `dvc repro`")

    def attach_text(self, run: Run, text: str, name: str) -> None:
        """Write an artifact."""
        self._client.log_text(self._id(run.uuid), text, name)

    def remove_artifacts(self, run: Run) -> None:
        """Make room: nothing of an older report may stand beside a newer one."""
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        if self._client.list_artifacts(self._id(run.uuid)):
            repository: Any = get_artifact_repository(
                self.runs[run.uuid].info.artifact_uri, self._client.tracking_uri
            )
            repository.delete_artifacts()

    def has_model(self, run: Run) -> bool:
        """Whether a whole model hangs on the run."""
        outputs = self._client.get_run(self._id(run.uuid)).outputs
        return bool(outputs and outputs.model_outputs)

    def attach_model(self, run: Run, model: LoggableModel) -> None:
        """Save the network in MLflow's format, and hang it on the run when it is whole.

        MLflow's own `log_model` works on a global store and the default experiment, so its steps are taken
        here.
        """
        import mlflow.pytorch
        from mlflow.entities import LoggedModelOutput
        from mlflow.models import Model

        run_id = self._id(run.uuid)
        for half_way in self._client.search_logged_models([self.id], f"source_run_id = '{run_id}'"):
            self._client.delete_logged_model(half_way.model_id)
        model_id = self._client.create_logged_model(self.id, "model", source_run_id=run_id).model_id
        with tempfile.TemporaryDirectory() as folder:
            mlflow.pytorch.save_model(
                model.module.cpu().eval(),
                f"{folder}/model",
                input_example=_as_batch(model.input_example),
                pip_requirements=["torch"],
                mlflow_model=Model(run_id=run_id, model_id=model_id, model_uuid=model_id),
            )
            self._client.log_model_artifacts(model_id, f"{folder}/model")
        self._client.finalize_logged_model(model_id, "READY")
        self._client.log_outputs(run_id, [LoggedModelOutput(model_id, step=0)])

    def close(self, run: Run) -> None:
        """End the run as its record says; one that still runs stays open."""
        run_id = self._id(run.uuid)
        if run.status != "running":
            self._client.set_terminated(run_id, _STATUS[run.status], run.end_ms)
            self._client.delete_tag(run_id, PROCESS_TAG)  # at last: until then it can be given up
        self._look_again(run)

    def close_gone(self) -> int:
        """Close as killed what a process of this machine opened that has gone; return how many those are."""
        gone = [each for each in self.runs.values() if _is_abandoned(each)]
        for each in gone:
            self._client.set_terminated(each.info.run_id, "KILLED", self._last_seen_ms(each))
        return len(gone)

    def _last_seen_ms(self, run: mlflow.entities.Run) -> int:
        times = [run.info.start_time]
        for key in run.data.metrics:
            times += [each.timestamp for each in self._client.get_metric_history(run.info.run_id, key)]
        return int(max(times))

    def _one_of(self, *twins: mlflow.entities.Run) -> mlflow.entities.Run:
        """The fuller of two runs with one uuid; the other one goes.

        Where the answer to a request is lost, MLflow asks again: so a server may have made a run twice.
        """
        less, more = sorted(twins, key=_fullness)
        if less.info.lifecycle_stage != "deleted":
            self._client.delete_run(less.info.run_id)
        return more

    def _look_again(self, run: Run) -> None:
        self.runs[run.uuid] = self._client.get_run(self._id(run.uuid))

    def _id(self, uuid: str) -> str:
        return str(self.runs[uuid].info.run_id)

    def _search(self) -> Iterator[mlflow.entities.Run]:
        """Every run of the experiment, also deleted ones."""
        from mlflow.entities import ViewType

        token = None
        while True:
            page = self._client.search_runs([self.id], "", ViewType.ALL, 1000, page_token=token)
            yield from page
            if not (token := page.token):
                return


def _fullness(run: mlflow.entities.Run) -> tuple[bool, bool, int]:
    """What is deleted counts least, what is closed most."""
    data, info = run.data, run.info
    size = len(data.metrics) + len(data.params) + len(data.tags)
    return info.lifecycle_stage != "deleted", info.status in _STATUS.values(), size


def _is_abandoned(run: mlflow.entities.Run) -> bool:
    if (
        run.info.lifecycle_stage == "deleted"
        or run.info.status != "RUNNING"
        or PROCESS_TAG not in run.data.tags
    ):
        return False
    return ProcessIdentity.parse(run.data.tags[PROCESS_TAG]).is_gone()


def _tags(run: Run) -> dict[str, str]:
    """What MLflow is told of a run in words; keys that begin with `mlflow.` fill columns of its pages."""
    told = {
        **run.tags,
        "stage": run.stage,
        "status": run.status,
        "mlflow.source.name": run.stage,
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": run.tags.get("git.commit", ""),
        "mlflow.note.content": describe(run),
    }
    return {key: value for key, value in told.items() if value}


def _time_ms(metric: Metric, run: Run) -> int:
    """A metric without a time of its own belongs to the end of its run."""
    return metric.time_ms or run.end_ms or now_ms()


def _as_batch(example: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """At least two: the format freezes an axis whose length is 1 in the example."""
    return example if len(example) > 1 else example.repeat(2, axis=0)


def _chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
