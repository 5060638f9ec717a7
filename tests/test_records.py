"""Results survive the disk exactly, and a file that is not what it should be is named in one line."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import pkgutil
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from pydantic.dataclasses import is_pydantic_dataclass

import parashot
from parashot.errors import RecordError
from parashot.questions.accuracy.records import EvaluateResult
from parashot.questions.strategies.records import StrategyBlock
from parashot.records import (
    Hardware,
    Metric,
    Run,
    read_json,
    read_result,
    read_rows,
    read_runs,
    write_metrics,
    write_result,
    write_rows,
    write_runs,
)
from parashot.train.records import HistoryRow

GOOD = EvaluateResult("ddp", "validation", 5, 1, 15, 100, 0.5, 0.01)


def _all_records() -> list[Any]:
    """Every record, a pydantic dataclass, of a module called `records`."""
    found = pkgutil.walk_packages(parashot.__path__, "parashot.")
    modules = [importlib.import_module(each.name) for each in found if each.name.endswith(".records")]
    named = [each for module in modules for each in vars(module).values() if isinstance(each, type)]
    return sorted({each for each in named if is_pydantic_dataclass(each)}, key=lambda kind: kind.__name__)


RECORDS = _all_records()
ROWS = [
    kind
    for kind in RECORDS
    if not any(
        origin in str(each.type)
        for each in dataclasses.fields(kind)
        for origin in ("dict", "tuple", "Mapping")
    )
]
_CHARACTERS = st.characters(codec="utf-8", exclude_categories=["Cc"])


def _any(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of a field; NaN is left to a test of its own, since it equals nothing."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        inner = next(each for each in arguments if each is not type(None))
        # A file holds an empty text as an empty cell, which is None.
        return st.none() | (st.text(_CHARACTERS, min_size=1) if inner is str else _any(inner))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(_any(arguments[0]), max_size=3).map(tuple)
    if origin is not None:  # a mapping of texts
        return st.dictionaries(_any(str), _any(str), max_size=3)
    if dataclasses.is_dataclass(hint):
        return _records(hint)
    return {
        bool: st.booleans(),
        int: st.integers(-(2**63), 2**63),
        float: st.floats(allow_nan=False),
        str: st.text(_CHARACTERS),
    }[hint]


def _records(kind: Any) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{each.name: _any(hints[each.name]) for each in dataclasses.fields(kind)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


def _refused(read: Callable[[Path], object], path: Path) -> str:
    with pytest.raises(RecordError) as raised:
        read(path)
    message = str(raised.value)
    assert message.startswith(f"{path}: ")
    assert message.endswith(f"; run `dvc repro` to make {path.parent.as_posix()} again")
    assert message.isprintable()
    return message


# --- round trips --------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(data=st.data())
def test_results_come_back_as_they_were(data: st.DataObject, folder: Path) -> None:
    kind = data.draw(st.sampled_from(RECORDS))
    result = data.draw(_records(kind))
    write_result(folder / "result.json", result)
    assert read_result(kind, folder / "result.json") == result


@settings(max_examples=100)
@given(data=st.data())
def test_rows_come_back_as_they_were(data: st.DataObject, folder: Path) -> None:
    kind = data.draw(st.sampled_from(ROWS))
    rows = data.draw(st.lists(_records(kind), max_size=4))
    write_rows(folder / "rows.csv", kind, rows)
    assert read_rows(kind, folder / "rows.csv") == rows


@settings(max_examples=30)
@given(runs=st.lists(_records(Run), max_size=4))
def test_runs_come_back_as_they_were(runs: list[Run], folder: Path) -> None:
    write_runs(folder / "records.jsonl", runs)
    assert read_runs(folder / "records.jsonl") == runs
    assert (folder / "records.jsonl").read_text().count("\n") == len(runs)


def test_what_diverged_can_be_written(tmp_path: Path) -> None:
    metrics = tuple(Metric("loss", value) for value in (math.nan, math.inf, -math.inf))
    write_runs(tmp_path / "records.jsonl", [Run("x", "train", "ok", 0, 1, metrics=metrics)])
    [run] = read_runs(tmp_path / "records.jsonl")
    assert math.isnan(run.metrics[0].value)
    assert [each.value for each in run.metrics[1:]] == [math.inf, -math.inf]

    row = HistoryRow(1, 16, 0.5, 0.5, 0.0, math.nan, 0.2, None, None)
    write_rows(tmp_path / "history.csv", HistoryRow, [row])
    assert math.isnan(read_rows(HistoryRow, tmp_path / "history.csv")[0].loss)


def test_metrics_are_strict_json_of_what_is_known(tmp_path: Path) -> None:
    file = tmp_path / "metrics.json"
    write_metrics(file, {"b": None, "c": 3, "a": 0.1, "d": math.nan, "e": "text"})

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    assert json.loads(file.read_text(), parse_constant=refuse) == {"a": 0.1, "c": 3, "d": "nan", "e": "text"}
    assert file.read_text().index('"a"') < file.read_text().index('"c"')


def test_records_are_frozen_and_checked_when_made() -> None:
    assert dataclasses.replace(GOOD, n_way=6).n_way == 6
    with pytest.raises(dataclasses.FrozenInstanceError):
        GOOD.n_way = 6  # type: ignore[misc]
    with pytest.raises(ValidationError):
        dataclasses.replace(GOOD, n_way="five")  # type: ignore[arg-type]
    assert type(dataclasses.replace(GOOD, test_accuracy=1).test_accuracy) is float  # a whole number is one
    assert len({Run("x", "train", "ok", 0, 1).uuid for _ in range(100)}) == 100


# --- files that are not what they should be -----------------------------------------------------------


@pytest.mark.parametrize(
    "read",
    [
        lambda path: read_rows(StrategyBlock, path),
        lambda path: read_result(Hardware, path),
        read_runs,
        read_json,
    ],
    ids=["rows", "result", "runs", "json"],
)
@pytest.mark.parametrize("content", [None, b"\xff\xfe", b'{\x00"\n', b"[" * 100_000])
def test_unreadable_files(read: Callable[[Path], object], content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "file").write_bytes(content)
    _refused(read, tmp_path / "file")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "cannot be read"),
        ("steps,round,variant,seconds\n4,0,ddp,0.5\n", "its columns are"),
        ("round,variant,steps,seconds\n0,ddp,4\n", "cannot be read"),
        ("round,variant,steps,seconds\n0,ddp,4,0.5,9\n", "cannot be read"),
        ("round,variant,steps\n0,ddp,4\n", "its columns are ['round', 'variant', 'steps']"),
        ("launch,round,variant,steps,seconds\n0,0,ddp,4,fast\n", "not a StrategyBlock (seconds: "),
        ("launch,round,variant,steps,seconds\n0,0,ddp,4.5,0.5\n", "not a StrategyBlock (steps: "),
        ("launch,round,variant,steps,seconds\n0,0,ddp,,0.5\n", "not a StrategyBlock (steps: "),
    ],
)
def test_rows_that_are_none(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "blocks.csv").write_text(text)
    assert says in _refused(lambda path: read_rows(StrategyBlock, path), tmp_path / "blocks.csv")


@pytest.mark.parametrize(
    "changes",
    [
        {"start_ms": 0.5},
        {"end_ms": "soon"},
        {"params": [["a", "1"]]},
        {"metrics": [{"key": "loss", "value": 0.5, "unit": "nats"}]},
        {"artifacts": "model.pt"},
        {"comment": "unknown"},
    ],
)
def test_runs_that_are_none(changes: dict[str, Any], tmp_path: Path) -> None:
    run = Run("ddp", "train", "ok", 0, 1, params={"a": "1"}, metrics=(Metric("loss", 0.5),))
    tree = dataclasses.asdict(run)
    file = tmp_path / "records.jsonl"
    file.write_text(json.dumps(tree) + "\n" + json.dumps({**tree, **changes}) + "\n")
    assert f"not a Run ({next(iter(changes))}" in _refused(read_runs, file)


@pytest.mark.parametrize(
    ("tree", "says"),
    [
        ([], "found []"),
        (None, "found None"),
        ({"strategy": "ddp"}, "chosen_by: Field required"),
        ({**vars(GOOD), "\x1b[2J\u202e": 1}, r"\x1b[2J\u202e: Unexpected keyword argument"),
        ({**vars(GOOD), "strategy": ["\u202e"]}, r"found ['\u202e']"),
        ({**vars(GOOD), "test_accuracy": 10**400}, "test_accuracy"),
        ({**vars(GOOD), "n_way": "9" * 5_000}, "n_way"),
    ],
)
def test_results_that_are_none(tree: object, says: str, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(json.dumps(tree), encoding="utf-8")
    message = _refused(lambda path: read_result(EvaluateResult, path), tmp_path / "result.json")
    assert "not a EvaluateResult (" in message and says in message
    assert len(message) < 2_500
