"""A training that is not run leaves a result, too: that it was skipped, and why."""

from __future__ import annotations

import logging

from parashot.files import replacing_folder
from parashot.parallel.torchrun import is_first_process
from parashot.records import Run, now_ms, write_metrics, write_result, write_rows, write_runs
from parashot.train.job import Job
from parashot.train.knobs import params_of
from parashot.train.records import HistoryRow, TrainResult

log = logging.getLogger(__name__)


def skip(job: Job, reason: str) -> TrainResult | None:
    """Write the result folder of a training that is not run. Returns None on every rank but the first."""
    log.info("train %s: skipped, %s", job.strategy, reason)
    if not is_first_process():
        return None
    result = TrainResult(job.strategy, "skipped", reason)
    run = Run(
        name=f"train {job.strategy}",
        stage=f"train-{job.strategy}",
        status="skipped",
        start_ms=now_ms(),
        end_ms=now_ms(),
        params=params_of(job.params, job.strategy),
        tags={**job.tags, "strategy": job.strategy, "reason": reason},
        artifacts=("result.json",),
    )
    with replacing_folder(job.out) as folder:
        write_result(folder / "result.json", result)
        write_metrics(folder / "metrics.json", {"skipped": 1})
        write_rows(folder / "history.csv", HistoryRow, [])  # plots name it
        write_runs(folder / "records.jsonl", [run])
    return result
