"""Results of a training that is not run: that it was skipped, and why. Imports no torch."""

from __future__ import annotations

import logging
from pathlib import Path

from parashot.files import replacing_folder, write_text
from parashot.records import Provenance, Run, now_ms, write_metrics, write_result, write_rows, write_runs
from parashot.train.records import HistoryRow, TrainResult

log = logging.getLogger(__name__)


def skip(stage: str, strategy: str, reason: str, out: Path, provenance: Provenance) -> TrainResult:
    """Write the result folder of a training that is not run."""
    log.info("%s: skipped, %s", stage.replace("-", " ", 1), reason)
    result = TrainResult(strategy, "skipped", reason)
    run = Run(
        name=stage.replace("-", " ", 1),
        stage=stage,
        status="skipped",
        start_ms=now_ms(),
        end_ms=now_ms(),
        params=dict(provenance.params),
        tags={**provenance.tags, "strategy": strategy, "reason": reason},
        artifacts=("result.json",),
    )
    with replacing_folder(out) as folder:
        write_result(folder / "result.json", result)
        write_metrics(folder / "metrics.json", {"skipped": 1})
        write_rows(folder / "history.csv", HistoryRow, [])  # plots name it
        write_runs(folder / "records.jsonl", [run])
    return result


def skip_pretraining(weights: Path, out: Path, provenance: Provenance) -> None:
    """Write a placeholder for the weights, and results that say so: trainings begin from the seed."""
    reason = "pretrain.epochs is 0"
    skip("pretrain", "serial", reason, out, provenance)
    write_text(weights, f"no weights: {reason}\n")  # of an empty output DVC would warn, time and again
