"""Results survive the disk exactly, and a file that is not what it should be is named in one line."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parashot.errors import RecordError
from parashot.questions.accuracy.records import EvaluateResult
from parashot.questions.strategies.records import StrategyBlock, StrategyVariant
from parashot.records import (
    Metric,
    Run,
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
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


def _refused(read: Callable[[Path], object], path: Path) -> str:
    with pytest.raises(RecordError) as raised:
        read(path)
    message = str(raised.value)
    assert message.startswith(f"{path}: ")
    assert message.endswith(f"; run `dvc repro` to make {path.parent.as_posix()} again")
    return message


@settings(max_examples=50)
@given(text=TEXT, number=st.floats(allow_nan=False), count=st.integers(-(2**63), 2**63))
def test_texts_and_numbers_come_back(text: str, number: float, count: int, folder: Path) -> None:
    variants = [StrategyVariant(text, text, "skipped", text, count, 1, 8)] * 2
    write_rows(folder / "rows.csv", StrategyVariant, variants)
    assert read_rows(StrategyVariant, folder / "rows.csv") == variants
    steps = [HistoryRow(count, 16, number, 0.5, 0.0, number, 0.2, None, number)]
    write_rows(folder / "rows.csv", HistoryRow, steps)
    assert read_rows(HistoryRow, folder / "rows.csv") == steps
    metrics = (Metric(text, number, count),)
    run = Run(text, "train", "ok", count, None, {text: text}, {text: text}, metrics, (text,), parent=text)
    write_runs(folder / "records.jsonl", [run, run])
    assert read_runs(folder / "records.jsonl") == [run, run]
    write_result(folder / "result.json", run)
    assert read_result(Run, folder / "result.json") == run


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

    found = json.loads(file.read_text(), parse_constant=Mock(side_effect=AssertionError))
    assert found == {"a": 0.1, "c": 3, "d": "nan", "e": "text"}
    assert file.read_text().index('"a"') < file.read_text().index('"c"')


ROWS, RESULT = partial(read_rows, StrategyBlock), partial(read_result, EvaluateResult)
COLUMNS = "launch,round,variant,steps,seconds\n"
RUN = dataclasses.asdict(Run("ddp", "train", "ok", 0, 1))


@pytest.mark.parametrize("read", [ROWS, RESULT], ids=["rows", "result"])
@pytest.mark.parametrize("content", [None, b"\xff\xfe", b'{\x00"\n', b"[" * 100_000])
def test_unreadable_files(read: Callable[[Path], object], content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "file").write_bytes(content)
    _refused(read, tmp_path / "file")


@pytest.mark.parametrize(
    ("read", "lines", "says"),
    [
        (ROWS, "", "cannot be read"),
        (ROWS, f"{COLUMNS}0,0,ddp,4\n", "cannot be read"),
        (ROWS, "round,variant,steps\n0,ddp,4\n", "its columns are ['round', 'variant', 'steps']"),
        (ROWS, f"{COLUMNS}0,0,ddp,4,fast\n", "not a StrategyBlock (seconds: "),
        (ROWS, f"{COLUMNS}0,0,ddp,,0.5\n", "not a StrategyBlock (steps: "),
        (read_runs, "", "cannot be read (it is empty)"),
        (read_runs, [RUN, {**RUN, "start_ms": 0.5}], "not a Run (start_ms"),
        (read_runs, [RUN, {**RUN, "metrics": [{"key": "loss", "value": 0.5, "unit": "nats"}]}], "(metrics"),
        (RESULT, [[]], "found []"),
        (RESULT, [{"strategy": "ddp"}], "not a EvaluateResult (chosen_by: Field required"),
        (RESULT, [{**vars(GOOD), "\x1b[2J\u202e": 1}], r"(\x1b[2J\u202e: Unexpected keyword argument"),
        (RESULT, [{**vars(GOOD), "n_way": "9" * 5_000}], "not a EvaluateResult (n_way"),
    ],
)
def test_files_that_hold_something_else(
    read: Callable[[Path], object], lines: str | list[object], says: str, tmp_path: Path
) -> None:
    """`lines`: text, or trees of JSON."""
    text = lines if isinstance(lines, str) else "\n".join(map(json.dumps, lines))
    (tmp_path / "file").write_text(text, encoding="utf-8")
    assert says in _refused(read, tmp_path / "file")
