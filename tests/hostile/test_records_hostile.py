"""Result files that are none: one line with the file and what makes it again."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from answers import Answered, Refused

from parashot.data.raw import read_manifest
from parashot.errors import DataError, RecordError
from parashot.questions.accuracy.records import Confusion, EvaluateResult
from parashot.records import read_json, read_result, read_rows, read_runs, write_result, write_rows

GOOD = EvaluateResult("ddp", "validation", 5, 1, 15, 100, 0.5, 0.01)
DEEP = "[" * 100_000

NO_JSON: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "Expecting value"),
    "text": (b"hello", "Expecting value"),
    "half": (b'{"a": [1, 2', "line 1"),
    "more than one": (b"{} {}", "Extra data"),
    "a web page": (b"<!doctype html>", "Expecting value"),
    "lists within lists": (DEEP.encode(), "recursion"),
    "objects within objects": (b'{"a":' * 100_000, "recursion"),
    "NaN": (b'{"a": NaN}', "NaN is no JSON"),
    "infinity": (b'{"a": Infinity}', "Infinity is no JSON"),
    "minus infinity": (b"[-Infinity]", "-Infinity is no JSON"),
    "a number of many digits": (b"9" * 10_000, "digits"),
    "other encodings": ('{"a": 1}'.encode("utf-16"), "utf-8"),
    "NUL": (b'{"a": "\x00"}', "control character"),
    "a newline in a text": (b'{"a": "\n"}', "control character"),
    "single quotes": (b"{'a': 1}", "double quotes"),
    "a comment": (b"// x\n{}", "Expecting value"),
}


@pytest.mark.parametrize("read", [read_json, lambda path: read_result(EvaluateResult, path), read_runs])
@pytest.mark.parametrize(("data", "message"), NO_JSON.values(), ids=NO_JSON)
def test_no_json(
    tmp_path: Path, refused: Refused, data: bytes, message: str, read: Callable[[Path], object]
) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(data)
    if read is read_runs:  # a run per line; no line is no run
        data = path.write_bytes(data.replace(b"\n", b"\\u0007") or b"{") and path.read_bytes()
        message = ""
    refused(RecordError, lambda: read(path), f"{path}: ", message, "run `dvc repro`")


def _tree(**changes: Any) -> dict[str, Any]:
    return {**vars(GOOD), **changes}


OTHERS: dict[str, tuple[object, str]] = {
    "a list": ([], "an object is needed"),
    "nothing": (None, "an object is needed"),
    "a key too many": (_tree(more=1), "unknown: more"),
    "a hostile key": (_tree(**{"\x1b[2J\u202e\n": 1}), r"unknown: \x1b[2J\u202e"),
    "a key missing": ({"strategy": "ddp"}, "missing"),
    "text for a number": (_tree(n_way="five"), "five"),
    "a point for a whole number": (_tree(n_way=5.5), "n_way: 5.5"),
    "truth for a number": (_tree(n_way=True), "n_way: True"),
    "a number for text": (_tree(strategy=3), "strategy: 3"),
    "a list for text": (_tree(strategy=["\u202e"]), r"strategy: ['\u202e']"),
    "nothing for a number": (_tree(test_accuracy=None), "test_accuracy: None"),
    "a number too large": (_tree(test_accuracy=10**400), "too large"),
    "text without end for a number": (_tree(n_way="9" * 5_000), "n"),
}


@pytest.mark.parametrize(("tree", "message"), OTHERS.values(), ids=OTHERS)
def test_other_content(tmp_path: Path, refused: Refused, tree: object, message: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(tree), encoding="utf-8")
    refused(RecordError, lambda: read_result(EvaluateResult, path), f"{path}: not a EvaluateResult", message)


HEAD = "actual,taken_for,offered,taken\n"
NO_ROWS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "cannot be read"),
    "other columns": (b"a,b\n1,2\n", "its columns are ['a', 'b']"),
    "hostile columns": ("\u202e,\x1b[2J\n".encode(), r"its columns are ['\u202e', '\x1b[2J']"),
    "a cell missing": (f"{HEAD}a,b,1\n".encode(), "cannot be read"),
    "a cell too many": (f"{HEAD}a,b,1,1,1\n".encode(), "cannot be read"),
    "text for a number": (f"{HEAD}a,b,x,1\n".encode(), "not a Confusion"),
    "a formula for a number": (f"{HEAD}a,b,=1+1,1\n".encode(), "not a Confusion"),
    "a giant cell": (f"{HEAD}{'a' * 200_000},b,1,1\n".encode(), "field larger than field limit"),
    "other encodings": (f"{HEAD}caf\u00e9,b,1,1\n".encode("latin-1"), "utf-8"),
}


@pytest.mark.parametrize(("data", "message"), NO_ROWS.values(), ids=NO_ROWS)
def test_no_rows(tmp_path: Path, refused: Refused, data: bytes, message: str) -> None:
    path = tmp_path / "confusion.csv"
    path.write_bytes(data)
    refused(RecordError, lambda: read_rows(Confusion, path), f"{path}: ", message)


FORMULAS = ["=1+1", "+1", "-x", "@A1", "\t=1", "'=1", "''+x", '=HYPERLINK("http://x")', "'", "'plain", ""]


@pytest.mark.parametrize("name", FORMULAS)
def test_a_name_that_looks_like_a_formula(tmp_path: Path, answered: Answered, name: str) -> None:
    """To a spreadsheet it is text; read again, it is what it was."""
    rows = [Confusion(name, "b", 3, 1)]
    write_rows(tmp_path / "confusion.csv", Confusion, rows)
    with (tmp_path / "confusion.csv").open(newline="", encoding="utf-8") as file:
        assert not list(csv.reader(file))[1][0].startswith(("=", "+", "-", "@", "\t"))
    assert read_rows(Confusion, tmp_path / "confusion.csv") == rows
    answered()


MANIFESTS: dict[str, bytes] = {
    "a list": b"[1]",
    "another version": b'{"version": "\\u202e"}',
    "lists within lists": DEEP.encode(),
    "keys missing": b'{"version": 1, "skipped": [], "splits": null}',
    "skipped a number": b'{"version": 1, "skipped": 3, "splits": null}',
    "skipped of text": b'{"version": 1, "skipped": ["x"], "splits": null}',
    "splits a list": b'{"version": 1, "skipped": [], "splits": []}',
    "splits of numbers": b'{"version": 1, "skipped": [], "splits": {"train": 1}}',
    "other encodings": '{"version": 1}'.encode("utf-16"),
}


@pytest.mark.parametrize("data", MANIFESTS.values(), ids=MANIFESTS)
def test_manifests_that_are_none(tmp_path: Path, refused: Refused, data: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(data)
    refused(DataError, lambda: read_manifest(tmp_path), "manifest.json: ", "`download`")


def test_a_result_survives(tmp_path: Path, answered: Answered) -> None:
    write_result(tmp_path / "result.json", GOOD)
    assert read_result(EvaluateResult, tmp_path / "result.json") == GOOD
    answered()
