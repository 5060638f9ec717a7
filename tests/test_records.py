"""Results survive the disk exactly, and a file that is not what it should be is named in one line."""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parashot import records
from parashot.errors import RecordError
from parashot.questions.accuracy.records import Confusion, EvaluateResult, ShownScore, WarmupRun
from parashot.questions.batchsz.records import BatchszBlock, BatchszRun
from parashot.questions.loader.records import LoaderBlock
from parashot.questions.scaling.records import CostMessage, CostStep
from parashot.questions.step.records import TuneBlock
from parashot.questions.strategies.records import StepAnatomy, StepShares, StrategyBlock, StrategyVariant
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
from parashot.train.records import (
    Choices,
    EpisodeAccuracy,
    HistoryRow,
    PretrainResult,
    PretrainRow,
    SeedAccuracy,
    TaskAccuracy,
    TrainResult,
)

RESULTS = [Choices, Hardware, PretrainResult, TrainResult, EvaluateResult]
ROWS = [
    TuneBlock,
    LoaderBlock,
    StrategyBlock,
    StrategyVariant,
    StepAnatomy,
    StepShares,
    CostStep,
    CostMessage,
    PretrainRow,
    HistoryRow,
    EpisodeAccuracy,
    TaskAccuracy,
    Confusion,
    ShownScore,
    BatchszRun,
    BatchszBlock,
    WarmupRun,
    SeedAccuracy,
]
STEP = StrategyBlock(round=0, variant="ddp", steps=4, seconds=0.5)


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
    if origin is dict:
        return st.dictionaries(_any(str), _any(str), max_size=3)
    if dataclasses.is_dataclass(hint):
        return _records(hint)
    return {
        bool: st.booleans(),
        int: st.integers(),
        float: st.floats(allow_nan=False),
        str: st.text(_CHARACTERS),
    }[hint]


_CHARACTERS = st.characters(codec="utf-8")


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


@pytest.mark.parametrize("kind", RESULTS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_results_come_back_as_they_were(kind: Any, data: st.DataObject, folder: Path) -> None:
    result = data.draw(_records(kind))
    write_result(folder / "result.json", result)
    assert read_result(kind, folder / "result.json") == result


@pytest.mark.parametrize("kind", ROWS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_rows_come_back_as_they_were(kind: Any, data: st.DataObject, folder: Path) -> None:
    rows = data.draw(st.lists(_records(kind), max_size=4))
    write_rows(folder / "rows.csv", kind, rows)
    assert read_rows(kind, folder / "rows.csv") == rows


@settings(max_examples=50, deadline=None)
@given(runs=st.lists(_records(Run), max_size=4))
def test_runs_come_back_as_they_were(runs: list[Run], folder: Path) -> None:
    write_runs(folder / "records.jsonl", runs)
    assert read_runs(folder / "records.jsonl") == runs
    assert (folder / "records.jsonl").read_text().count("\n") == len(runs)


def test_every_kind_of_result_is_tried() -> None:
    classes = {each for each in vars(records).values() if dataclasses.is_dataclass(each)}
    assert classes == {*RESULTS, *ROWS, Run, Metric}


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


def test_every_run_has_an_identity_of_its_own() -> None:
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
@pytest.mark.parametrize("content", [None, b"\xff\xfe", b'{\x00"\n'], ids=["missing", "binary", "cut off"])
def test_unreadable_files(read: Callable[[Path], object], content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "file"
    if content is not None:
        file.write_bytes(content)
    _refused(read, file)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "cannot be read"),
        ("steps,round,variant,seconds\n4,0,ddp,0.5\n", "its columns are"),
        ("round,variant,steps,seconds\n0,ddp,4\n", "cannot be read"),
        ("round,variant,steps,seconds\n0,ddp,4,0.5,9\n", "cannot be read"),
        ("round,variant,steps\n0,ddp,4\n", r"its columns are \['round', 'variant', 'steps'\]"),
        ("round,variant,steps,seconds,more\n0,ddp,4,0.5,9\n", "its columns are"),
        ("round,variant,steps,seconds\n0,ddp,4,fast\n", "not a StrategyBlock .*'fast'"),
        ("round,variant,steps,seconds\n0,ddp,4.5,0.5\n", "not a StrategyBlock .*'4.5'"),
        ("round,variant,steps,seconds\n0,ddp,,0.5\n", "not a StrategyBlock"),
    ],
)
def test_rows_that_are_none(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "blocks.csv").write_text(text)
    message = _refused(lambda path: read_rows(StrategyBlock, path), tmp_path / "blocks.csv")
    with pytest.raises(RecordError, match=says):
        raise RecordError(message)


def test_a_truth_value_is_true_or_false(tmp_path: Path) -> None:
    text = "round,batchsz,synchronised,episodes,steps,seconds\n0,2,yes,60,30,0.5\n"
    (tmp_path / "blocks.csv").write_text(text)
    assert "synchronised: 'yes'" in _refused(
        lambda path: read_rows(BatchszBlock, path), tmp_path / "blocks.csv"
    )


def _run_tree(**changes: Any) -> dict[str, Any]:
    run = Run("ddp", "train", "ok", 0, 1, params={"a": "1"}, metrics=(Metric("loss", 0.5),))
    return {**json.loads(json.dumps(dataclasses.asdict(run))), **changes}


@pytest.mark.parametrize(
    "tree",
    [
        None,
        3,
        "text",
        [],
        {},
        {"name": "ddp"},
        _run_tree(status="fine"),
        _run_tree(status=["ok"]),
        _run_tree(start_ms=0.5),
        _run_tree(start_ms=True),
        _run_tree(start_ms=None),
        _run_tree(end_ms="soon"),
        _run_tree(name=None),
        _run_tree(name=3),
        _run_tree(params=[["a", "1"]]),
        _run_tree(params={"a": 1}),
        _run_tree(metrics="loss"),
        _run_tree(metrics=[{"key": "loss"}]),
        _run_tree(metrics=[{"key": "loss", "value": "low"}]),
        _run_tree(metrics=[{"key": "loss", "value": 0.5, "unit": "nats"}]),
        _run_tree(artifacts="model.pt"),
        _run_tree(artifacts=[3]),
        _run_tree(comment="unknown"),
    ],
)
def test_runs_that_are_none(tree: Any, tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text(json.dumps(_run_tree()) + "\n" + json.dumps(tree) + "\n")
    assert "not a Run (" in _refused(read_runs, file)


def test_a_result_of_another_kind_is_refused(tmp_path: Path) -> None:
    write_result(tmp_path / "result.json", STEP)
    message = _refused(lambda path: read_result(Hardware, path), tmp_path / "result.json")
    assert "not a Hardware (unknown: round, seconds, steps, variant)" in message


def test_a_whole_number_is_a_number(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(json.dumps({**dataclasses.asdict(STEP), "seconds": 1}))
    seconds = read_result(StrategyBlock, tmp_path / "result.json").seconds
    assert (seconds, type(seconds)) == (1.0, float)
