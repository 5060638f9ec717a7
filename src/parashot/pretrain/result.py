"""What pretraining leaves on disk, also where there is none."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from uuid import uuid4

from parashot.files import replacing_folder, write_text
from parashot.params import Params, select
from parashot.records import Metric, Run, now_ms, write_metrics, write_result, write_rows, write_runs
from parashot.train.records import PretrainResult, PretrainRow, followed

log = logging.getLogger(__name__)

KNOBS = (
    "seed",
    "episode",
    "model",
    "pretrain",
    "train.precision",
    "train.val_episodes",
    "train.checkpoint_every",
    "augment",
    "evaluate.k_query",
    "evaluate.val_episodes",
    "parallel.device",
)
"""What pretraining depends on."""

_FOLLOWED = ("loss", "train_accuracy", "val_accuracy")
_TOLD = (
    "seconds",
    "images_per_second",
    "images",
    "steps",
    "train_accuracy",
    "val_accuracy",
    "val_accuracy_ci95",
    "resumed",
)


def skip_pretraining(params: Params, weights: Path, out: Path, tags: Mapping[str, str]) -> None:
    """Leave no weights, but a file and a result that say so: trainings begin from the seed."""
    reason = "pretrain.epochs is 0"
    log.info("pretrain: skipped, %s", reason)
    result = PretrainResult("skipped", reason)
    run = pretraining_run(uuid4().hex, params, {**tags, "reason": reason}, now_ms(), [], result)
    write_pretraining(out, result, [], run)
    write_text(weights, f"no weights: {reason}\n")  # of an empty output DVC would warn, time and again


def pretraining_run(
    uuid: str,
    params: Params,
    tags: Mapping[str, str],
    start_ms: int,
    history: Sequence[PretrainRow],
    result: PretrainResult | None,
) -> Run:
    """The run as MLflow is told it: while it trains (`result` None), and when it is done."""
    metrics = followed(history, _FOLLOWED, start_ms)
    done = result is not None
    if result is not None:
        metrics += [
            Metric(name, float(value), result.steps, now_ms()) for name, value in _told(result).items()
        ]
    return Run(
        name="pretrain",
        stage="pretrain",
        status=result.status if result else "running",
        start_ms=start_ms,
        end_ms=now_ms() if done else None,
        params=select(params, KNOBS),
        tags=dict(tags),
        metrics=tuple(metrics),
        artifacts=("history.csv", "result.json") if done else (),
        uuid=uuid,
    )


def write_pretraining(out: Path, result: PretrainResult, history: Sequence[PretrainRow], run: Run) -> None:
    """Write the result folder, whole or not at all."""
    with replacing_folder(out) as folder:
        write_result(folder / "result.json", result)
        write_metrics(folder / "metrics.json", _told(result) or {"skipped": 1})
        write_rows(folder / "history.csv", PretrainRow, history)
        write_runs(folder / "records.jsonl", [run])


def _told(result: PretrainResult) -> dict[str, float | int]:
    """The flat numbers of a pretraining that ran."""
    numbers = asdict(result)
    return (
        {} if result.status != "ok" else {name: numbers[name] for name in _TOLD if numbers[name] is not None}
    )
