"""From measurements to files: CSV of the records, metrics for DVC, and runs for MLflow.

Every measuring stage becomes one parent run and a child for each setting; the typed row of a setting gives
its metrics, under the names of its fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parashot.files import replacing_folder
from parashot.questions.statistics import flat
from parashot.records import (
    Metric,
    Provenance,
    Run,
    Status,
    now_ms,
    write_metrics,
    write_result,
    write_rows,
    write_runs,
)

RESULT = "result.json"

Table = tuple[type[Any], Sequence[Any]]
"""Type of record and records of a CSV file."""


@dataclass(frozen=True)
class Setting:
    """One setting that was measured.

    options: what sets it apart, as MLflow's params. row: dataclass of results, whose numbers and intervals
    become metrics. series: repeated measurements, by round.
    """

    name: str
    options: Mapping[str, object]
    row: Any = None
    series: Mapping[str, Sequence[float]] = field(default_factory=dict)
    status: Status = "ok"
    reason: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def metrics(self) -> dict[str, float]:
        """Numbers of the row; a skipped setting has none."""
        if self.row is None or self.status == "skipped":
            return {}
        return {name: value for name, value in numbers(self.row).items() if name not in self.options}


def numbers(row: Any) -> dict[str, float]:
    """Numbers of a dataclass by field; an `Interval` becomes NAME, NAME_low and NAME_high."""
    return {
        name: float(value)
        for name, value in flat(row).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


@dataclass(frozen=True)
class Stage:
    """A measuring stage: its name in MLflow and in DVC, and when it began."""

    title: str
    name: str
    provenance: Provenance
    start_ms: int = field(default_factory=now_ms)

    def write(
        self,
        out: Path,
        tables: Mapping[str, Table],
        settings: Sequence[Setting],
        result: Any = None,
    ) -> None:
        """Write the folder of results, whole or not at all.

        tables: CSV files by name. result: record of result.json.
        """
        with replacing_folder(out) as folder:
            for name, (kind, records) in tables.items():
                write_rows(folder / name, kind, records)
            write_metrics(folder / "metrics.json", {each.name: each.metrics for each in settings})
            if result is not None:
                write_result(folder / RESULT, result)
            artifacts = (*([RESULT] if result is not None else []), *tables)
            write_runs(folder / "records.jsonl", self._runs(settings, artifacts))

    def _runs(self, settings: Sequence[Setting], artifacts: tuple[str, ...]) -> list[Run]:
        """The parent, and a child for each setting."""
        parent = Run(
            name=self.title,
            stage=self.name,
            status="ok",
            start_ms=self.start_ms,
            end_ms=now_ms(),
            params=dict(self.provenance.params),
            tags=dict(self.provenance.tags),
            metrics=tuple(
                Metric(f"{each.name}.{key}".replace(",", ""), value)  # MLflow allows no comma
                for each in settings
                for key, value in each.metrics.items()
            ),
            artifacts=artifacts,
        )
        return [parent, *(self.child(each, parent.uuid) for each in settings)]

    def child(self, setting: Setting, parent: str | None = None) -> Run:
        """Make the run of one setting; parent: uuid of the run above it."""
        blocks = [
            Metric(f"{key}_block", float(value), step, self.start_ms)
            for key, values in setting.series.items()
            for step, value in enumerate(values)
        ]
        means = [Metric(key, value, 0, self.start_ms) for key, value in setting.metrics.items()]
        reason = {"reason": setting.reason} if setting.reason else {}
        return Run(
            name=f"{self.title}: {setting.name}",
            stage=self.name,
            status=setting.status,
            start_ms=self.start_ms,
            end_ms=now_ms(),
            params={key: str(value) for key, value in setting.options.items()},
            tags={**self.provenance.tags, **setting.tags, **reason},
            metrics=(*blocks, *means),
            parent=parent,
        )
