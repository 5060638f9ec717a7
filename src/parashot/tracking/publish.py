"""Bring runs into MLflow: those on disk, each exactly once, and the one that is being made."""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from parashot.errors import one_line
from parashot.records import Metric, Run, now_ms, read_runs
from parashot.tracking.experiment import NOTE_TAG, Experiment, LoggableModel
from parashot.tracking.store import Store, opened

log = logging.getLogger(__name__)

ModelLoader = Callable[[Path], LoggableModel]

_STUDIES = uuid.UUID("0d8e6f8e-54a3-4f0c-9a51-5f2d1c8a7b36")
_NOTE_LENGTH = 7900  # MLflow cuts a tag at 8000 characters


@dataclass(frozen=True)
class StudyRun:
    """The run above all runs of a study; `note` is its answer, `artifacts` are files and folders."""

    name: str
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    artifacts: Sequence[Path] = ()
    note: str = ""


@dataclass(frozen=True)
class Published:
    """Counts of a call of `publish`; the study's own run is counted too."""

    published: int = 0  # made, or completed
    already_there: int = 0


def publish(
    store: Store, study: StudyRun, folders: Iterable[Path], load_model: ModelLoader | None = None
) -> Published:
    """Bring the runs of every folder's records.jsonl into MLflow, under the run of the study.

    What was skipped is no run; the study has a tag with its reason.
    `load_model` reads the file that `Run.model` names; without it no model is saved. Runs of this experiment
    whose process has gone are closed as killed. Raises `TrackingError` where MLflow cannot be told,
    `RecordError` for records that are missing; a later call brings in what is not there yet.
    """
    every = [(folder, run) for folder in folders for run in read_runs(folder / "records.jsonl")]
    off = _skipped([run for _, run in every])
    records = [each for each in every if each[1].uuid not in off]
    skipped = {
        f"skipped.{run.stage}.{run.name}": run.tags["reason"]
        for _, run in every
        if run.uuid in off and "reason" in run.tags
    }
    records.sort(key=lambda each: each[1].parent is not None)  # parents first
    runs = [run for _, run in records]
    above = _run_of(study, runs)
    with opened(store) as experiment:
        if experiment.is_deleted(above.uuid):
            return Published(already_there=1 + len(runs))
        missing = [each for each in records if not experiment.is_done(each[1])]
        is_new = not experiment.is_done(above)
        if is_new:
            experiment.open(above)
        for folder, run in missing:
            experiment.open(run, parent=run.parent or above.uuid)
            experiment.write(run)
            for artifact in run.artifacts:
                experiment.attach(run.uuid, folder / artifact, Path(artifact).parent)
            if run.model is not None and load_model is not None:
                experiment.attach_model(run.uuid, load_model(folder / run.model))
            experiment.close(run)
        if is_new:
            experiment.write(above)
            for path in study.artifacts:
                experiment.attach(above.uuid, path)
            note = _note(study, experiment, runs, above.uuid)
            experiment.set_tags(above.uuid, {**skipped, NOTE_TAG: note})
            experiment.close(above)
        published = len(missing) + is_new
        experiment.close_abandoned()
        return Published(published, 1 + len(runs) - published)


class Live:
    """Show a run in MLflow while it is made: call it with the run so far, as often as there is news.

    Publishing the final record of the same uuid completes the run, which is closed here when it has ended or
    failed. A store that fails is left alone from then on, with one warning.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._given_up = False

    def __call__(self, run: Run) -> None:
        """Show `run` as far as it has come; never raises."""
        if self._given_up:
            return
        try:
            with opened(self.store, wait=False) as experiment:
                if not experiment.is_done(run):
                    experiment.open(run)
                    experiment.write(run)
                    experiment.close(run)
                experiment.close_abandoned()
        except BlockingIOError:  # another process publishes: the next call has all there is to say
            pass
        except Exception as error:
            self._given_up = True
            log.warning("MLflow shows no more of this training: %s", one_line(error))


def _skipped(runs: Sequence[Run]) -> set[str]:
    """Runs that were skipped, and those above nothing else, by uuid."""
    skipped = {run.uuid for run in runs if run.status == "skipped"}
    above = {run.parent for run in runs if run.uuid in skipped and run.parent is not None}
    return skipped | (above - {run.parent for run in runs if run.uuid not in skipped})


def _run_of(study: StudyRun, runs: Sequence[Run]) -> Run:
    """Make the study's own run: the same for the same results, params and report.

    It ends with its latest run, and took what its runs took, also where those were restored from another day.
    """
    ends_ms = [run.end_ms or run.start_ms for run in runs] or [now_ms()]
    took_ms = sum((run.end_ms or run.start_ms) - run.start_ms for run in runs if run.parent is None)
    identity = [
        sorted(run.uuid for run in runs),
        sorted(study.params.items()),
        sorted(study.metrics.items()),
        [_digest(path) for path in study.artifacts],
    ]
    return Run(
        name=study.name,
        stage="study",
        status="ok",
        start_ms=max(ends_ms) - took_ms,
        end_ms=max(ends_ms),
        params=dict(study.params),
        tags=dict(study.tags),
        metrics=tuple(Metric(key, value) for key, value in study.metrics.items()),
        uuid=uuid.uuid5(_STUDIES, json.dumps(identity)).hex,
    )


def _digest(artifact: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(artifact.rglob("*")) if artifact.is_dir() else [artifact]:
        if file.is_file():
            digest.update(f"{file.relative_to(artifact.parent).as_posix()}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def _note(study: StudyRun, experiment: Experiment, runs: Sequence[Run], above: str) -> str:
    """Answer of the study, and a table of its runs, in Markdown with links, as far as there is room."""
    lines = [study.note, "", "| run | stage | status |", "|---|---|---|"]
    for run in runs:
        restored = run.parent is None and not experiment.is_under(run.uuid, above)
        link = f"[{run.name}](#/experiments/{experiment.id}/runs/{experiment.run_id(run.uuid)})"
        lines.append(f"| {link} | {run.stage} | {run.status}{', restored from the cache' * restored} |")
    note = "\n".join(lines).lstrip()
    return note if len(note) <= _NOTE_LENGTH else note[:_NOTE_LENGTH].rpartition("\n")[0]
