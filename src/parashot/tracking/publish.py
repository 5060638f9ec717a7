"""Bring what is on disk into MLflow, each run exactly once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from parashot.records import Run, read_runs
from parashot.tracking.experiment import Experiment, LoggableModel
from parashot.tracking.store import LIVE, PUBLISHING, Store, opened
from parashot.tracking.study import Study, digest_of, run_of, study_json, study_note

DIGEST_TAG = "parashot.digest"

ModelLoader = Callable[[Path], LoggableModel]


@dataclass
class Published:
    """What a call of `publish` did; the study's own run is counted too."""

    published: int = 0
    updated: int = 0
    already_there: int = 0
    closed_as_killed: int = 0


def publish(store: Store, study: Study, folders: Iterable[Path], load_model: ModelLoader) -> Published:
    """Bring every run of every folder's records.jsonl into MLflow, under the run of the study.

    `load_model` reads the file that `Run.model` names. Runs of this experiment whose process has gone are
    closed as killed. Raises `TrackingError` where MLflow cannot be told, `RecordError` for records that are
    missing; whatever is not there yet, a later call brings in.
    """
    records = [(folder, run) for folder in folders for run in read_runs(folder / "records.jsonl")]
    with opened(store, PUBLISHING) as experiment:
        return _Publication(experiment, study, load_model).bring(_parents_first(records))


def publish_live(store: Store, run: Run) -> None:
    """Show `run`, which the calling process is still making, as far as it has come.

    Call it again as the run goes on; publishing the final record of the same uuid completes it. One that has
    failed gets no record, and is closed. Raises `TrackingError`, within seconds where the store hangs.
    """
    with opened(store, LIVE) as experiment:
        if not experiment.is_done(run.uuid):
            experiment.open(run)
            experiment.write(run)
            experiment.close(run)
        experiment.close_gone()


class _Publication:
    """One call of `publish`."""

    def __init__(self, experiment: Experiment, study: Study, load_model: ModelLoader) -> None:
        self.experiment, self.study, self.load_model = experiment, study, load_model
        self.done = Published()

    def bring(self, records: Sequence[tuple[Path, Run]]) -> Published:
        """Bring in the runs, then what is said of them together; at last close what others left open."""
        runs = [run for _, run in records]
        whole = run_of(self.study, runs)
        if self.experiment.is_deleted(whole.uuid):
            self.done.already_there = 1 + len(runs)
        else:
            if whole.uuid not in self.experiment.runs:
                self.experiment.open(whole)
            for folder, run in records:
                self._bring_run(folder, run, whole)
            self._bring_study(whole, runs)
        self.done.closed_as_killed = self.experiment.close_gone()
        return self.done

    def _bring_run(self, folder: Path, run: Run, whole: Run) -> None:
        """Bring in one run, or complete it."""
        experiment = self.experiment
        if experiment.is_done(run.uuid):
            self.done.already_there += 1
            return
        experiment.open(run, under=run.parent or whole.uuid)
        experiment.write(run)
        for artifact in run.artifacts:
            experiment.attach(run, folder / artifact, Path(artifact))
        if run.model is not None and not experiment.has_model(run):
            experiment.attach_model(run, self.load_model(folder / run.model))
        experiment.close(run)
        self._count(run)

    def _bring_study(self, whole: Run, runs: Sequence[Run]) -> None:
        """Say of the runs together what has changed since it was last said."""
        experiment = self.experiment
        table = experiment.table(runs, under=whole.uuid)
        summary = study_json(self.study, table)
        digest = digest_of(summary, self.study.artifacts)
        if experiment.is_done(whole.uuid) and experiment.tag(whole.uuid, DIGEST_TAG) == digest:
            self.done.already_there += 1
            return
        experiment.open(whole)
        experiment.remove_artifacts(whole)
        for path in self.study.artifacts:
            experiment.attach(whole, path, Path(path.name))
        experiment.attach_text(whole, summary, "study.json")
        experiment.write(whole, replace=True)
        experiment.set_tags(
            whole, {DIGEST_TAG: digest, "mlflow.note.content": study_note(experiment.id, table)}
        )
        experiment.close(whole)
        self._count(whole)

    def _count(self, run: Run) -> None:
        if run.uuid in self.experiment.made:
            self.done.published += 1
        else:
            self.done.updated += 1


def _parents_first(records: Iterable[tuple[Path, Run]]) -> list[tuple[Path, Run]]:
    """Every run once, none before its parent."""
    waiting = {run.uuid: (folder, run) for folder, run in records}
    ordered: list[tuple[Path, Run]] = []

    def take(uuid: str) -> None:
        if record := waiting.pop(uuid, None):
            take(record[1].parent or "")
            ordered.append(record)

    for uuid in list(waiting):
        take(uuid)
    return ordered
