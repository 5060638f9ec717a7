"""`parashot classify`: a table, JSON, CSV, a sheet; and one line for what the user can mend."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser import WIDTHS, barriers, needs_browser, opened
from coloured import picture
from command_line import Commands
from PIL import Image

from parashot.cli.shared import SHIPPED
from parashot.questions.accuracy.records import EvaluateResult
from parashot.records import Run, write_result, write_runs

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.usefixtures("one_core")
Classify = Callable[..., str]
COLOURS = {"blue sky": (40, 60, 230), "grass": (30, 200, 40), "<b>fire</b>": (240, 40, 20)}


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    """A folder per colour: names that need escaping elsewhere, unequal numbers, and things to pass over."""
    folder = tmp_path / "shots"
    for number, (name, colour) in enumerate(COLOURS.items()):
        inner = folder / name.replace("/", "_")
        (inner / "deeper").mkdir(parents=True)
        Image.fromarray(picture(colour, number)).save(inner / "one.PNG")
        if number:
            Image.fromarray(picture(colour, 10 + number)).save(inner / "deeper/two.jpg", quality=95)
        (inner / "notes.txt").write_text("not an image")
        (inner / ".hidden.png").write_bytes(b"not an image either")
    (folder / "readme.md").write_text("nor this")
    (folder / ".git").mkdir()
    return folder


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Four pictures of each colour, in folders called like the classes; some with a palette or alpha."""
    folder = tmp_path / "images"
    for number, (name, colour) in enumerate(COLOURS.items()):
        inner = folder / name.replace("/", "_")
        inner.mkdir(parents=True)
        for kind in range(4):
            image = Image.fromarray(picture(colour, 100 + 10 * number + kind, 30 + kind, 24))
            mode = ("RGB", "P", "RGBA", "RGB")[kind]
            image.convert(mode).save(inner / f"{kind}.{('jpg', 'gif', 'png', 'webp')[kind]}")
    return folder


@pytest.fixture
def classify(shots: Path, command: Commands) -> Classify:
    """`classify(images, *words)` calls the command with these shots."""
    return partial(command, "classify", "--shots", shots, "--images")


def test_a_table_of_every_picture_and_a_sheet_that_stands_alone(
    images: Path, tmp_path: Path, classify: Classify, command: Commands
) -> None:
    sheet = tmp_path / "sheet.html"
    lines = classify(images, "--weights", SHIPPED, "--html", sheet).splitlines()
    assert lines[0].split()[:2] == ["picture", "class"] and len(lines) == 1 + 4 * len(COLOURS)
    right = re.search(r"(\d+) of 12 pictures whose folder is called like a class", command.said)
    assert right and int(right[1]) >= 10  # it never saw them, but colours are easy
    assert f"sheet: {sheet}" in command.said
    page = sheet.read_text(encoding="utf-8")
    assert page.count("<img") == page.count("data:image/jpeg;base64,") == 12 + 5
    assert not re.search(r'(?:src|href)="(?!data:)', page)


def test_json_and_csv_say_the_same(images: Path, classify: Classify) -> None:
    some = (images / "grass", images / "blue sky/0.jpg", "--weights", SHIPPED)
    tree = json.loads(classify(*some, "--json"))
    rows = list(csv.reader(io.StringIO(classify(*some, "--csv"))))
    assert rows[0] == ["picture", "class", *tree["classes"]] and len(rows) == 1 + 5
    for row, each in zip(rows[1:], tree["pictures"], strict=True):
        assert row[:2] == [each["picture"], each["class"]]
        assert [float(cell) for cell in row[2:]] == list(each["scores"].values())
        assert each["class"] == max(each["scores"], key=each["scores"].__getitem__)
        assert all(0 <= score <= 1 for score in each["scores"].values())


def test_pictures_of_none_of_the_classes_are_rejected(images: Path, classify: Classify) -> None:
    some = (images / "grass", "--weights", SHIPPED)
    kept = json.loads(classify(*some, "--reject", 0.0, "--json"))["pictures"]
    best = sorted(max(each["scores"].values()) for each in kept)
    tree = json.loads(classify(*some, "--reject", (best[0] + best[1]) / 2, "--json"))
    assert tree["score"] == "probability"
    found = {max(each["scores"].values()): each["class"] for each in tree["pictures"]}
    assert found[best[0]] is None and None not in [found[each] for each in best[1:]]
    assert classify(*some, "--reject", 1).count("none of these") == 4
    rows = classify(*some, "--reject", 1, "--csv").splitlines()[1:]
    assert [row.split(",")[1] for row in rows] == [""] * 4


def test_many_classes_show_the_best_two(shots: Path, images: Path, classify: Classify) -> None:
    for number in range(9):
        shutil.copytree(shots / "grass", shots / f"meadow {number}")
    header, row = classify(images / "grass/0.jpg").splitlines()
    assert header.split("  ")[-1].strip() == "probability" and "next best" in header
    assert re.findall(r"\d\.\d{3}", row) == sorted(re.findall(r"\d\.\d{3}", row), reverse=True)


@needs_browser
def test_a_sheet_is_for_everyone(images: Path, tmp_path: Path, classify: Classify, browser: Browser) -> None:
    sheet = tmp_path / "sheet.html"
    classify(images, "--html", sheet)
    for width, scheme in zip(WIDTHS, ("light", "dark"), strict=True):
        assert barriers(opened(browser, sheet, width, scheme)[0]) == []


def test_what_cannot_be_read_is_told_and_the_rest_is_done(
    images: Path, classify: Classify, command: Commands
) -> None:
    (images / "grass/broken.jpg").write_bytes((images / "grass/0.jpg").read_bytes()[:300])
    (images / "grass/empty.png").write_bytes(b"")
    assert len(json.loads(classify(images / "grass", "--json", status=1))["pictures"]) == 4
    errors = [line for line in command.said.splitlines() if line.startswith("error: ")]
    assert len(errors) == 3 and "broken.jpg" in errors[0] and "empty.png: the file is empty" in errors[1]
    assert errors[2].startswith("error: 2 of 6 pictures could not be read")


def test_without_weights_the_network_is_shipped_or_was_trained_here_on_photographs(
    images: Path, here: Path, classify: Classify, command: Commands
) -> None:
    def assert_taken(network: str) -> None:
        classify(images / "grass")
        assert command.said.startswith(f"network: {network}")

    assert_taken("the one that comes with parashot")
    chosen = EvaluateResult("dp", "validation", 5, 1, 15, 100, 0.5, 0.01)
    write_result(here / "results/evaluate/result.json", chosen)
    (here / "results/train/dp").mkdir(parents=True)
    shutil.copyfile(SHIPPED, here / "results/train/dp/model.safetensors")
    for source, network in (("synthetic", "the one that comes with"), ("miniimagenet", "results/train/dp/")):
        training = Run("train-dp", "train-dp", "ok", 1, 2, {"data.source": source})
        write_runs(here / "results/train/dp/records.jsonl", [training])
        assert_taken(network)
    (here / "results/train/dp/model.safetensors").unlink()  # as while it is trained again
    assert_taken("the one that comes with")


def _one_class(shots: Path) -> None:
    for each in shots.iterdir():
        if each.is_dir() and each.name != "grass":
            shutil.rmtree(each)


def _a_fifo(images: Path) -> None:
    shutil.rmtree(images)
    os.mkfifo(images)


BROKEN: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "no such shots": ("shots", shutil.rmtree, "shots: no such folder"),
    "a single class": ("shots", _one_class, "only the class grass in it"),
    "a class without image": ("shots", lambda shots: (shots / "void").mkdir(), "void: no image in it"),
    "a broken example": (
        "shots",
        lambda shots: (shots / "grass/one.PNG").write_bytes(b"\x89PNG\r\n"),
        "grass/one.PNG: ",
    ),
    "a fifo": ("images", _a_fifo, "no plain file"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_bad_input_is_one_line(case: str, images: Path, classify: Classify, command: Commands) -> None:
    place, spoil, line = BROKEN[case]
    spoil(images.with_name(place))
    assert classify(images, status=1).count("\n") <= 1  # at most the header of the table
    assert command.said.splitlines()[-1].startswith("error: ") and line in command.said
