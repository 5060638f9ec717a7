"""What is said of a study as a whole; knows nothing of MLflow's interface."""

from __future__ import annotations

import hashlib
import json
import math
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from parashot.records import Metric, Run, now_ms

_STUDIES = uuid.UUID("0d8e6f8e-54a3-4f0c-9a51-5f2d1c8a7b36")
_NOTE_LENGTH = 7900  # MLflow cuts a tag at 8000 characters


@dataclass(frozen=True)
class Study:
    """What is said of a study as a whole; `artifacts` are files and folders."""

    name: str
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    artifacts: Sequence[Path] = ()


@dataclass(frozen=True)
class Row:
    """A run of the study, and where it stands in MLflow."""

    run: Run
    run_id: str
    restored: bool  # first published under another study


def run_of(study: Study, runs: Sequence[Run]) -> Run:
    """The study's own run: the same for the same results and params.

    It ends with its latest run, and took what its runs took, also where those were restored from another day.
    Its metrics are of now: MLflow shows the latest.
    """
    ends_ms = [run.end_ms or run.start_ms for run in runs] or [now_ms()]
    took_ms = sum((run.end_ms or run.start_ms) - run.start_ms for run in runs if run.parent is None)
    identity = [sorted(run.uuid for run in runs), sorted(study.params.items())]
    return Run(
        name=study.name,
        stage="study",
        status="ok",
        start_ms=max(ends_ms) - took_ms,
        end_ms=max(ends_ms),
        params=dict(study.params),
        tags=dict(study.tags),
        metrics=tuple(Metric(key, value, time_ms=now_ms()) for key, value in study.metrics.items()),
        uuid=uuid.uuid5(_STUDIES, json.dumps(identity)).hex,
    )


def study_json(study: Study, table: Iterable[Row]) -> str:
    """Every run of the study with its last metrics, also those that stand under another study."""
    tree = {
        "name": study.name,
        "params": dict(study.params),
        "metrics": _finite(study.metrics),
        "runs": [
            {
                "name": row.run.name,
                "stage": row.run.stage,
                "status": row.run.status,
                "reason": row.run.tags.get("reason", ""),
                "uuid": row.run.uuid,
                "run_id": row.run_id,
                "restored": row.restored,
                "metrics": _finite({each.key: each.value for each in row.run.metrics}),
            }
            for row in table
        ],
    }
    return json.dumps(tree, indent=2, allow_nan=False) + "\n"


def study_note(experiment_id: str, table: Iterable[Row]) -> str:
    """The table of the study's runs, in Markdown with links, as far as MLflow has room for it."""
    lines = ["| run | stage | status |", "|---|---|---|"]
    for row in table:
        link = f"[{row.run.name}](#/experiments/{experiment_id}/runs/{row.run_id})"
        restored = ", restored from the cache" if row.restored else ""
        lines.append(f"| {link} | {row.run.stage} | {row.run.status}{restored} |")
        if sum(len(line) + 1 for line in lines) > _NOTE_LENGTH:
            return "\n".join([*lines[:-2], "", "All of them: study.json among the artifacts."])
    return "\n".join(lines)


def digest_of(summary: str, artifacts: Iterable[Path]) -> str:
    """A name for the contents: what is said of the study, and every file that goes with it."""
    digest = hashlib.sha256(summary.encode())
    for top in artifacts:
        for file in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if file.is_file():
                digest.update(f"\0{file.relative_to(top.parent)}\0".encode())
                digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _finite(metrics: Mapping[str, float]) -> dict[str, float | str]:
    """JSON has no NaN and no infinity."""
    return {key: value if math.isfinite(value) else str(value) for key, value in metrics.items()}
