"""Names of pictures and classes are text and nothing else: on a terminal, in a table, in a page."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from browser import HOSTILE_NAMES, Elements
from coloured import picture

from parashot.classify.predictions import Prediction, as_csv, as_json, as_table, sheet
from parashot.data.images import encode_jpeg
from parashot.plain import printable

each_name = pytest.mark.parametrize("name", HOSTILE_NAMES.values(), ids=HOSTILE_NAMES)


def _predictions(name: str) -> list[Prediction]:
    return [Prediction(Path(name), (0.25, 0.75)), Prediction(Path("b.jpg"), (0.75, 0.25))]


@each_name
def test_in_what_classify_prints(name: str) -> None:
    lines = as_table(_predictions(name), [name, "other"]).split("\n")
    assert len(lines) == 4 and lines[-1] == ""
    assert all(line.isprintable() for line in lines)
    rows = list(csv.reader(io.StringIO(as_csv(_predictions(name), [name, "other"]), newline="")))
    texts = [*rows[0], *(cell for row in rows[1:] for cell in row[:2])]
    assert len(rows) == 3
    assert all(text.isprintable() and text[0] not in "=+-@\t\r" for text in texts)
    tree = json.loads(as_json(_predictions(name), [name, "other"]))
    assert tree["classes"] == [name, "other"]
    assert tree["pictures"][1]["class"] == name


@each_name
def test_in_the_sheet(tmp_path: Path, name: str) -> None:
    """As a class, and where the file system takes it, as a picture's file."""
    file = tmp_path / "x.jpg"
    if not set(name) & set("/\0"):
        file = tmp_path / f"{name}.jpg"
    file.write_bytes(encode_jpeg(picture((9, 9, 9), 0)))
    seen = Elements(sheet([Prediction(file, (0.75, 0.25))], {name: [file], "other": [file]}, name))
    assert seen.tags.keys() & {"script", "iframe", "object", "link", "base", "form"} == set()
    assert seen.handlers == []
    assert all(each.startswith("data:image/jpeg;base64,") for each in seen.addresses)
    assert printable(name) in seen.text and printable(file.name) in seen.text
    assert seen.text.replace("\n", "").isprintable()
