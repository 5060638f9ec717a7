"""Files of a finished training: history, result, metrics, model, and the run that MLflow is told of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import numpy as np
import numpy.typing as npt
import torch

from parashot.files import replacing_folder
from parashot.records import Metric, Run, now_ms, write_metrics, write_result, write_rows, write_runs
from parashot.task import Plan
from parashot.train.checkpoint import TrainingProgress
from parashot.train.job import Job
from parashot.train.records import EpisodeAccuracy, HistoryRow, TrainResult

MODEL = "model.safetensors"

_FOLLOWED = ("loss", "train_accuracy", "step_seconds", "val_accuracy")
"""Columns of the history that MLflow shows over steps."""


def history_rows(progress: TrainingProgress, plan: Plan) -> list[HistoryRow]:
    """One row per step whose loss is known."""
    trace, validations, unmeasured = progress.trace, progress.validations, (None, None)
    seconds = np.cumsum(trace.step_seconds).tolist()
    steps = zip(seconds, trace.step_seconds, trace.data_seconds, trace.losses, trace.accuracies, strict=False)
    return [
        HistoryRow(done, min(done * plan.batchsz, plan.items), *step, *validations.get(done, unmeasured))
        for done, step in enumerate(steps, start=1)
    ]


def result_metrics(result: TrainResult) -> dict[str, float]:
    """Every number of a training, by the name of its field, and its rate."""
    numbers = {
        name: float(value)
        for name, value in asdict(result).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    if result.seconds:
        numbers["items_per_second"] = result.items / result.seconds
    return numbers


def training_run(
    job: Job, progress: TrainingProgress, plan: Plan, result: TrainResult | None, how: str
) -> Run:
    """The run as MLflow is told it: while it trains (`result` None), and when it is done."""
    metrics = [
        Metric(name, value, row.step, progress.start_ms + round(1000 * row.seconds))
        for row in history_rows(progress, plan)
        for name in _FOLLOWED
        if (value := getattr(row, name)) is not None
    ]
    if result is not None:
        metrics += [
            Metric(f"final_{name}" if name in _FOLLOWED else name, value, result.steps, now_ms())
            for name, value in result_metrics(result).items()
        ]
    done = result is not None
    files = ("history.csv", "val_episodes.csv", "result.json", *([MODEL] if job.model is None else []))
    return Run(
        name=job.name,
        stage=job.stage,
        status="ok" if done else "running",
        start_ms=progress.start_ms,
        end_ms=now_ms() if done else None,
        params=dict(job.provenance.params),
        tags={**job.provenance.tags, "strategy": job.strategy, "how": how},
        metrics=tuple(metrics),
        artifacts=files if done else (),
        uuid=progress.uuid,
    )


def write_training(
    job: Job,
    progress: TrainingProgress,
    plan: Plan,
    result: TrainResult,
    val_accuracies: npt.NDArray[np.float64],
    state: Mapping[str, torch.Tensor],
    run: Run,
) -> None:
    """Write the result folder, whole or not at all, and the model file."""
    with replacing_folder(job.out) as folder:
        write_result(folder / "result.json", result)
        write_metrics(folder / "metrics.json", result_metrics(result))
        write_rows(folder / "history.csv", HistoryRow, history_rows(progress, plan))
        episodes = [EpisodeAccuracy(index, float(each)) for index, each in enumerate(val_accuracies)]
        write_rows(folder / "val_episodes.csv", EpisodeAccuracy, episodes)
        job.task.save(job.model or folder / MODEL, state)
        write_runs(folder / "records.jsonl", [run])
