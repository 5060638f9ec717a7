"""What a training leaves on disk: its history, its numbers, and the run that MLflow is told of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from parashot.data.batches import Plan
from parashot.files import replacing_folder
from parashot.model.weights import save_weights
from parashot.params import ModelParams, Params
from parashot.records import Metric, Run, now_ms, write_metrics, write_result, write_rows, write_runs
from parashot.train.knobs import params_of
from parashot.train.loop import Trace
from parashot.train.records import EpisodeAccuracy, HistoryRow, TrainResult, followed

_FOLLOWED = ("loss", "train_accuracy", "step_seconds", "val_accuracy")
"""Columns of the history that are followed over steps."""


def history_rows(
    trace: Trace, plan: Plan, validations: Mapping[int, tuple[float, float]]
) -> list[HistoryRow]:
    """A row per step; `validations` maps steps done to accuracy and half width of its interval."""
    seconds = np.cumsum(trace.times.step_seconds).tolist()
    return [
        HistoryRow(
            step=index + 1,
            episodes=min((index + 1) * plan.batchsz, plan.episodes),
            seconds=seconds[index],
            step_seconds=trace.times.step_seconds[index],
            data_seconds=trace.times.data_seconds[index],
            loss=loss,
            train_accuracy=trace.accuracies[index],
            val_accuracy=validations[index + 1][0] if index + 1 in validations else None,
            val_accuracy_ci95=validations[index + 1][1] if index + 1 in validations else None,
        )
        for index, loss in enumerate(trace.losses)
    ]


def training_run(
    *,
    uuid: str,
    strategy: str,
    params: Params,
    tags: Mapping[str, str],
    start_ms: int,
    history: Sequence[HistoryRow],
    result: TrainResult | None,
) -> Run:
    """The run as MLflow is told it: while it trains (`result` None), and when it is done."""
    metrics = followed(history, _FOLLOWED, start_ms)
    if result is not None:
        metrics += [
            Metric(key, float(value), result.steps, now_ms()) for key, value in metrics_of(result).items()
        ]
    return Run(
        name=f"train {strategy}",
        stage=f"train-{strategy}",
        status="running" if result is None else "ok",
        start_ms=start_ms,
        end_ms=None if result is None else now_ms(),
        params=params_of(params, strategy),
        tags={**tags, "strategy": strategy},
        metrics=tuple(metrics),
        artifacts=() if result is None else ("history.csv", "val_episodes.csv", "result.json", "model.pt"),
        model=None if result is None else "model.pt",
        uuid=uuid,
    )


def metrics_of(result: TrainResult) -> dict[str, float | int]:
    """The flat numbers of a training, under the names all reports use."""
    numbers = {
        "seconds": result.seconds,
        "seconds_per_step": result.seconds_per_step,
        "episodes_per_second": result.episodes / result.seconds if result.seconds else None,
        "data_share": result.data_share,
        "val_accuracy": result.val_accuracy,
        "val_accuracy_ci95": result.val_accuracy_ci95,
        "peak_memory_bytes": result.peak_memory_bytes,
        "replicas": result.replicas,
        "steps": result.steps,
        "resumed": result.resumed,
        "nonfinite_steps": result.nonfinite_steps,
    }
    return {key: value for key, value in numbers.items() if value is not None}


def write_training(
    out: Path,
    result: TrainResult,
    history: Sequence[HistoryRow],
    val_accuracies: npt.NDArray[np.float64],
    model: ModelParams,
    state: Mapping[str, torch.Tensor],
    run: Run,
) -> None:
    """Write the result folder, whole or not at all."""
    with replacing_folder(out) as folder:
        write_result(folder / "result.json", result)
        write_metrics(folder / "metrics.json", metrics_of(result))
        write_rows(folder / "history.csv", HistoryRow, history)
        episodes = [EpisodeAccuracy(index, float(each)) for index, each in enumerate(val_accuracies)]
        write_rows(folder / "val_episodes.csv", EpisodeAccuracy, episodes)
        save_weights(folder / "model.pt", model, state)
        write_runs(folder / "records.jsonl", [run])
