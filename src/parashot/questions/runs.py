"""From measurements to files: CSV of the records, metrics for DVC, and runs for MLflow.

Every measuring stage becomes one parent run and a child for each setting; the typed row of a setting gives
its metrics, under the names of its fields.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from parashot.files import replacing_folder
from parashot.parsing import in_yaml
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


def files_of(kind: type[Any]) -> Iterator[tuple[Field[Any], str, type[Any]]]:
    """Files of a dataclass of results: of each field its file's name and the type of the file's records.

    A field of type `tuple[Row, ...]` is the table NAME.csv, any other the record NAME.json.
    """
    hints = get_type_hints(kind)
    for each in fields(kind):
        hint = hints[each.name]
        if get_origin(hint) is tuple:
            yield each, f"{each.name}.csv", get_args(hint)[0]
        else:
            yield each, f"{each.name}.json", hint


@dataclass(frozen=True)
class Stage:
    """A measuring stage: its name in MLflow and in DVC, and when it began."""

    title: str
    name: str
    provenance: Provenance
    start_ms: int = field(default_factory=now_ms)

    def write(
        self, out: Path, results: Any, settings: Sequence[Setting], *, model: Path | None = None
    ) -> None:
        """Write the folder of results, whole or not at all.

        results: dataclass of results (`files_of`). model: file of the network that was measured.
        """
        artifacts = []
        with replacing_folder(out) as folder:
            for each, name, kind in files_of(type(results)):
                artifacts.append(name)
                if name.endswith(".csv"):
                    write_rows(folder / name, kind, getattr(results, each.name))
                else:
                    write_result(folder / name, getattr(results, each.name))
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
                artifacts=tuple(artifacts),
                model=os.path.relpath(model, out) if model else None,
            )
            children = [self.child(each, parent.uuid) for each in settings]
            write_metrics(folder / "metrics.json", {each.name: each.metrics for each in settings})
            write_runs(folder / "records.jsonl", [parent, *children])

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
            params={key: in_yaml(value) for key, value in setting.options.items()},
            tags={**self.provenance.tags, **setting.tags, **reason},
            metrics=(*blocks, *means),
            parent=parent,
        )
