"""`parashot summary --to`: a folder of its own, and never one that holds something else."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from parashot.cli import main

sys.path.insert(0, str(Path(__file__).parent / "questions"))
import study_builder as build

from parashot.questions.summary import summarize


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    summary = summarize(build.study(), build.params())
    (tmp_path / "results").mkdir()
    (tmp_path / "results/summary.json").write_text(json.dumps(summary))
    (tmp_path / "reports/figures").mkdir(parents=True)
    for name in ("overview", "episode_0"):
        (tmp_path / f"reports/figures/{name}.png").write_bytes(b"a picture")
    (tmp_path / "params.yaml").write_text("seed: 0\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_folder_is_written_and_written_again(here: Path) -> None:
    for _ in range(2):
        assert main(["summary", "--to", "mine"]) == 0
    names = {each.name for each in (here / "mine").iterdir()}
    assert names == {"README.md", "params.yaml", "overview.png", "episode_0.png"}


def test_real_images_are_not_handed_on(here: Path) -> None:
    summary = json.loads((here / "results/summary.json").read_text())
    (here / "results/summary.json").write_text(json.dumps(summary | {"synthetic": False}))
    assert main(["summary", "--to", "mine"]) == 0
    assert {each.name for each in (here / "mine").iterdir()} == {"README.md", "params.yaml", "overview.png"}


@pytest.mark.parametrize("place", [".", "results", "params.yaml"])
def test_what_holds_something_else_is_left_alone(
    here: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {each: each.read_bytes() for each in here.rglob("*") if each.is_file()}
    assert main(["summary", "--to", place]) == 1
    assert {each: each.read_bytes() for each in here.rglob("*") if each.is_file()} == before
    assert capsys.readouterr().err.count("\n") == 1
