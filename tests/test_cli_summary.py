"""`parashot summary`: the tables of a study, in a folder of their own and never in that of others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from parashot.cli import main
from parashot.questions.loader.records import LoaderBlock
from parashot.records import write_metrics, write_rows


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the loader was measured, with two figures of it."""
    loader = tmp_path / "results/loader"
    times = {0: 0.2, 2: 0.1}
    blocks = [
        LoaderBlock(number, "packed", workers, 30, 1, seconds * (1 + 0.01 * number), 0.1, 2**20)
        for workers, seconds in times.items()
        for number in range(9)
    ]
    write_rows(loader / "blocks.csv", LoaderBlock, blocks)
    write_metrics(loader / "metrics.json", {})
    (tmp_path / "reports/figures").mkdir(parents=True)
    for name in ("overview", "batchsz"):
        (tmp_path / f"reports/figures/{name}.png").write_bytes(b"a picture")
    shutil.copyfile(Path(__file__).parents[1] / "params.yaml", tmp_path / "params.yaml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_tables_are_printed_and_what_is_missing_is_told(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["summary", "--title", "Mine"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("# Mine\n") and "| packed | 2 |" in page and "| 2.00× " in page
    assert "*Missing: strategies. " in page


def test_a_folder_is_written_and_written_again(here: Path) -> None:
    for _ in range(2):
        assert main(["summary", "--to", "mine"]) == 0
    names = {each.name for each in (here / "mine").iterdir()}
    assert names == {"README.md", "params.yaml", "overview.png", "batchsz.png"}
    assert "![overview](overview.png)\n\n![batchsz](batchsz.png)" in (here / "mine/README.md").read_text()


@pytest.mark.parametrize("place", [".", "results", "params.yaml"])
def test_what_holds_something_else_is_left_alone(
    here: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {each: each.read_bytes() for each in here.rglob("*") if each.is_file()}
    assert main(["summary", "--to", place]) == 1
    assert {each: each.read_bytes() for each in here.rglob("*") if each.is_file()} == before
    assert capsys.readouterr().err.count("\n") == 1


def test_nothing_measured_is_one_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(here / "results")
    assert main(["summary"]) == 1
    assert "run `dvc repro`" in capsys.readouterr().err
