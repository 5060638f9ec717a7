"""Results with units in their names; the only reader and writer of result files.

A result folder holds
    metrics.json    a flat dict of numbers and short texts, for `dvc metrics`
    result.json     one record, where the stage has a single result
    *.csv           one row per record (raw measurements, histories, per-episode accuracies)
    records.jsonl   one `Run` per line: what MLflow is told (`parashot.tracking`)
A missing or malformed file raises `RecordError` naming the file and the command that makes it again.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import time
import typing
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any, Literal, TextIO, TypeVar, dataclass_transform

import pydantic.dataclasses
from pydantic import ConfigDict, TypeAdapter, ValidationError

from parashot.errors import RecordError, first_fault, one_line
from parashot.files import replacing_file, write_text

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Make `cls` a frozen pydantic dataclass: its fields are checked, and no others are accepted."""
    decorate: Any = pydantic.dataclasses.dataclass(frozen=True, config=ConfigDict(extra="forbid"))
    return typing.cast("type[T]", decorate(cls))


Status = Literal["ok", "skipped", "stopped"]
"""`skipped`: it cannot run here, or is switched off; `stopped`: it met its time limit. Both say why."""


# --- MLflow runs ----------------------------------------------------------------------------------


@record
class Metric:
    """One value of one metric; `time_ms` is milliseconds since the epoch."""

    key: str
    value: float
    step: int = 0
    time_ms: int = 0


@record
class Run:
    """One line of records.jsonl: one run as MLflow shows it.

    `artifacts` are paths relative to the folder of records.jsonl; `model` is one to a network, which MLflow
    keeps in its own format as well. `parent` is the uuid of another run of the same file, or None: then it
    belongs directly under the study. `skipped` and `stopped` runs say why in the tag `reason`. One that was
    shown while it was made is `running`, then `unpublished` until its files are in MLflow, too.
    """

    name: str
    stage: str
    status: Literal["ok", "skipped", "stopped", "running", "unpublished", "failed"]
    start_ms: int
    end_ms: int | None
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    metrics: tuple[Metric, ...] = ()
    artifacts: tuple[str, ...] = ()
    model: str | None = None
    parent: str | None = None
    uuid: str = field(default_factory=lambda: uuid.uuid4().hex)


@record
class Provenance:
    """Origin of a run: the params its stage depends on, and tags (commit, experiment, machine)."""

    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# --- the machine ----------------------------------------------------------------------------------


@record
class Hardware:
    """hardware.json: stable facts of this machine; free memory, time and host name are left out."""

    cpu_model: str
    cores: int  # physical
    threads: int  # hardware threads this process may use
    memory_gib: int
    gpus: tuple[str, ...]
    platform: str
    python: str
    torch: str
    cuda: str | None

    def __str__(self) -> str:
        return f"{self.cpu_model}, {self.threads} threads; {', '.join(self.gpus) or 'no GPU'}"


# --- reading and writing --------------------------------------------------------------------------


def write_result(path: Path, result: Any) -> None:
    """Write one record as JSON."""
    _write_json(path, dataclasses.asdict(result))


def read_result(kind: type[T], path: Path) -> T:
    """Read one record. Raises `RecordError`."""
    with _reading(path, kind):
        return TypeAdapter(kind).validate_python(json.loads(path.read_text(encoding="utf-8")))


def write_rows(path: Path, kind: type[T], rows: Iterable[T]) -> None:
    """Write records as CSV with a header; floats keep their full precision, None is an empty cell."""
    with replacing_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        _write_rows(file, kind, rows)


def append_row(path: Path, kind: type[T], row: T) -> None:
    """Add one record to a CSV file, which begins with it; what is there stays whatever ends this process."""
    with path.open("a", newline="", encoding="utf-8") as file:
        _write_rows(file, kind, [row])


def read_rows(kind: type[T], path: Path) -> list[T]:
    """Read records from CSV. Raises `RecordError`."""
    with _reading(path, kind):
        with path.open(newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
        if header != _names(kind):
            raise RecordError(f"{path}: not a {kind.__name__} (its columns are {header}); {_remedy(path)}")
        hints, build = typing.get_type_hints(kind), TypeAdapter(kind).validate_python
        empty = {name: None if type(None) in typing.get_args(hints[name]) else "" for name in header}
        trees = (zip(header, row, strict=True) for row in rows)
        return [build({name: text or empty[name] for name, text in tree}) for tree in trees]


def write_metrics(path: Path, metrics: Mapping[str, Any]) -> None:
    """Write metrics.json, nested as DVC allows it; None values are left out, since DVC compares numbers."""
    _write_json(path, {key: value for key, value in metrics.items() if value is not None})


def write_runs(path: Path, runs: Sequence[Run]) -> None:
    """Write records.jsonl."""
    trees = [_plain(dataclasses.asdict(run)) for run in runs]
    write_text(path, "".join(json.dumps(tree, allow_nan=False) + "\n" for tree in trees))


def read_runs(path: Path) -> list[Run]:
    """Read records.jsonl, which has a run at least. Raises `RecordError`."""
    with _reading(path, Run):
        build, lines = TypeAdapter(Run).validate_python, path.read_text(encoding="utf-8").splitlines()
        if not lines:
            raise ValueError("it is empty")
        return [build(json.loads(line)) for line in lines]


def read_json(path: Path) -> Any:
    """Read any JSON result. Raises `RecordError`."""
    with _reading(path):
        return json.loads(path.read_text(encoding="utf-8"))


def holds(tree: object, values: Any) -> bool:
    """Whether `tree`, read from JSON, holds what the dataclass `values` does; tuples are lists there."""
    return bool(tree == json.loads(json.dumps(dataclasses.asdict(values))))


@contextmanager
def _reading(path: Path, kind: type[Any] = object) -> Iterator[None]:
    """Within it, an error of what `path` holds, records of `kind`, becomes a `RecordError`."""
    try:
        yield
    except ValidationError as error:
        raise RecordError(f"{path}: not a {kind.__name__} ({first_fault(error)}); {_remedy(path)}") from error
    except (OSError, ValueError, RecursionError, csv.Error) as error:
        raise RecordError(f"{path}: cannot be read ({one_line(error)}); {_remedy(path)}") from error


def _remedy(path: Path) -> str:
    return f"run `dvc repro` to make {path.parent.as_posix()} again"


def _write_rows(file: TextIO, kind: type[Any], rows: Iterable[Any]) -> None:
    writer = csv.DictWriter(file, _names(kind), lineterminator="\n")
    if file.tell() == 0:
        writer.writeheader()
    writer.writerows(map(vars, rows))


def _write_json(path: Path, tree: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(_plain(tree), indent=2, sort_keys=True, allow_nan=False) + "\n")


def _plain(tree: Any) -> Any:
    """Replace NaN and infinity, unknown to JSON, by "nan" and "inf", which pydantic reads as numbers."""
    if isinstance(tree, Mapping):
        return {key: _plain(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_plain(value) for value in tree]
    return str(tree) if isinstance(tree, float) and not math.isfinite(tree) else tree


def _names(kind: type[Any]) -> list[str]:
    return [each.name for each in dataclasses.fields(kind)]
