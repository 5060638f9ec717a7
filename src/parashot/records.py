"""What every stage reports, with units in the names; the only reader and writer of result files.

A result folder holds
    metrics.json    a flat dict of numbers and short texts, for `dvc metrics`
    result.json     one dataclass of this file, where the stage has a single result
    *.csv           one row per dataclass of this file (raw measurements, histories, per-episode accuracies)
    records.jsonl   one `Run` per line: what MLflow is told (`parashot.tracking`)
A missing or malformed file raises `RecordError` naming the file and the stage that writes it.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import time
import types
import typing
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from parashot.errors import RecordError, one_line
from parashot.files import replacing_file, write_text
from parashot.plain import cell, from_cell
from parashot.secrets import without_secrets

T = TypeVar("T")

Status = Literal["ok", "skipped", "stopped"]
"""`skipped`: it cannot run here, or is switched off; `stopped`: it met its time limit. Both say why."""


# --- MLflow runs ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Metric:
    """One value of one metric; `time_ms` is milliseconds since the epoch."""

    key: str
    value: float
    step: int = 0
    time_ms: int = 0


@dataclass(frozen=True)
class Run:
    """One line of records.jsonl: one run as MLflow shows it.

    `artifacts` are paths relative to the folder of records.jsonl; `model` is the saved model among them, if
    any. `parent` is the uuid of another run of the same file, or None: then it belongs directly under the
    study. `skipped` and `stopped` runs say why in the tag `reason`.
    """

    name: str
    stage: str
    status: Literal["ok", "skipped", "stopped", "running", "failed"]
    start_ms: int
    end_ms: int | None
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    metrics: tuple[Metric, ...] = ()
    artifacts: tuple[str, ...] = ()
    model: str | None = None
    parent: str | None = None
    uuid: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        clean = {key: without_secrets(value) for key, value in self.tags.items()}
        object.__setattr__(self, "tags", clean)


@dataclass(frozen=True)
class Provenance:
    """Origin of a run: the params its stage depends on, by dotted key, and its tags."""

    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


# --- the machine ----------------------------------------------------------------------------------


@dataclass(frozen=True)
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


# --- reading and writing ------------------------------------------------------------------------------


def write_result(path: Path, result: Any) -> None:
    """Write one dataclass as JSON."""
    _write_json(path, dataclasses.asdict(result))


def read_result(kind: type[T], path: Path) -> T:
    """Read one dataclass. Raises `RecordError`."""
    return _build(kind, read_json(path), path)


def write_rows(path: Path, kind: type[T], rows: Iterable[T]) -> None:
    """Write dataclasses as CSV: a header, then a row each; None is an empty cell."""
    names = _names(kind)
    with replacing_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows([[_cell(getattr(row, name)) for name in names] for row in rows])


def read_rows(kind: type[T], path: Path) -> list[T]:
    """Read dataclasses from CSV. Raises `RecordError`."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
        trees = [dict(zip(header, map(from_cell, row), strict=True)) for row in rows]
    except (OSError, ValueError, csv.Error) as error:
        raise RecordError(f"{path}: cannot be read ({one_line(error)}); {_remedy(path)}") from error
    if header != _names(kind):
        raise RecordError(f"{path}: not a {kind.__name__} (its columns are {header}); {_remedy(path)}")
    return [_build(kind, tree, path) for tree in trees]


def write_metrics(path: Path, metrics: Mapping[str, Any]) -> None:
    """Write metrics.json, nested as DVC allows it; None values are left out, since DVC compares numbers."""
    _write_json(path, {key: value for key, value in metrics.items() if value is not None})


def write_runs(path: Path, runs: Sequence[Run]) -> None:
    """Write records.jsonl."""
    trees = [_plain(dataclasses.asdict(run)) for run in runs]
    write_text(path, "".join(json.dumps(tree, allow_nan=False) + "\n" for tree in trees))


def read_runs(path: Path) -> list[Run]:
    """Read records.jsonl. Raises `RecordError`."""
    try:
        trees = [_parsed(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"{path}: cannot be read ({one_line(error)}); {_remedy(path)}") from error
    return [_build(Run, tree, path) for tree in trees]


def read_json(path: Path) -> Any:
    """Read any JSON result. Raises `RecordError`."""
    try:
        return _parsed(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"{path}: cannot be read ({one_line(error)}); {_remedy(path)}") from error


def _parsed(text: str) -> Any:
    """Read JSON as the standard has it. Raises `ValueError`, and `RecursionError` where it is too deep."""
    return json.loads(text, parse_constant=_no_number)


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def _write_json(path: Path, tree: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(_plain(tree), indent=2, sort_keys=True, allow_nan=False) + "\n")


def _plain(tree: Any) -> Any:
    """`tree` with "nan" and "inf" for what JSON does not know: the loss of a training that diverged."""
    if isinstance(tree, Mapping):
        return {key: _plain(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_plain(value) for value in tree]
    return str(tree) if isinstance(tree, float) and not math.isfinite(tree) else tree


def _remedy(path: Path) -> str:
    return f"run `dvc repro` to make {path.parent.as_posix()} again"


def _names(kind: type[Any]) -> list[str]:
    return [each.name for each in dataclasses.fields(kind)]


def _cell(value: Any) -> Any:
    """Floats keep their full precision; None becomes an empty cell, and no text a formula."""
    if value is None:
        return ""
    if isinstance(value, str):
        return cell(value)
    return repr(value) if isinstance(value, float) else value


def _build(kind: type[T], tree: Any, path: Path) -> T:
    """Make a `kind` from JSON values or CSV cells. Raises `RecordError`."""
    try:
        return _convert(kind, tree)
    except (TypeError, ValueError, OverflowError) as error:
        raise RecordError(f"{path}: not a {kind.__name__} ({one_line(error)}); {_remedy(path)}") from error


def _convert(kind: type[T], tree: Any) -> T:
    """Make a `kind`, each field by its type. Raises `TypeError` or `ValueError`."""
    if not isinstance(tree, dict):
        raise TypeError("an object is needed")
    if unknown := tree.keys() - set(_names(kind)):
        raise TypeError(f"unknown: {', '.join(sorted(unknown))}")
    hints = typing.get_type_hints(kind)
    return kind(**{name: _value(hints[name], raw, name) for name, raw in tree.items()})


def _value(hint: Any, raw: Any, name: str) -> Any:
    """`raw` as `hint` wants it. Raises `TypeError` or `ValueError`."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in {types.UnionType, typing.Union}:
        inner = next(each for each in arguments if each is not type(None))
        return None if raw is None or raw == "" else _value(inner, raw, name)
    if origin is tuple and isinstance(raw, list):
        return tuple(_value(arguments[0], each, name) for each in raw)
    if origin is dict and isinstance(raw, dict):
        return {key: _value(arguments[1], each, name) for key, each in raw.items()}
    if dataclasses.is_dataclass(hint):
        return _convert(typing.cast("type[Any]", hint), raw)
    return _scalar(hint, raw, name)


def _scalar(hint: Any, raw: Any, name: str) -> Any:
    """One text, number or truth value; in a CSV file each of them is text."""
    if isinstance(raw, str) and hint is bool:
        raw = {"True": True, "False": False}.get(raw, raw)
    elif isinstance(raw, str) and hint in {int, float}:
        raw = hint(raw)
    elif type(raw) is int and hint is float:
        raw = float(raw)
    fits = raw in typing.get_args(hint) if typing.get_origin(hint) is Literal else type(raw) is hint
    if not fits:
        raise ValueError(f"{name}: {raw!r}")
    return raw
