"""`parashot advise`: what the measurements say, as text and as JSON; what is missing, in words."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from parashot.cli import main
from parashot.hardware import inspect_hardware
from parashot.questions.loader.records import LoaderBlock
from parashot.questions.step.records import TuneBlock
from parashot.records import write_metrics, write_result, write_rows
from parashot.train.records import Choices

ROUNDS = range(9)
LOADER = {("jpeg", 0): 0.2, ("jpeg", 2): 0.1, ("packed", 0): 0.004, ("packed", 2): 0.005}


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with half a study: the loader and the way of a step, nothing else."""
    loader = tmp_path / "results/loader"
    blocks = [
        LoaderBlock(number, backend, workers, 30, 1, seconds * (1 + 0.01 * number), 0.1, 2**20)
        for (backend, workers), seconds in LOADER.items()
        for number in ROUNDS
    ]
    write_rows(loader / "blocks.csv", LoaderBlock, blocks)
    write_metrics(loader / "metrics.json", {})
    write_steps(tmp_path, fp32=0.3, bf16=0.1)
    write_result(tmp_path / "results/choices.json", Choices("split", "bf16", "none"))
    write_result(tmp_path / "hardware.json", inspect_hardware())
    shutil.copyfile(Path(__file__).parents[1] / "params.yaml", tmp_path / "params.yaml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_steps(study: Path, **seconds: float) -> None:
    """As if steps had been timed, by precision."""
    steps = [
        TuneBlock(number, "split", precision, "none", each * (1 + 0.01 * number))
        for precision, each in seconds.items()
        for number in ROUNDS
    ]
    write_rows(study / "results/tune/blocks.csv", TuneBlock, steps)


def advise(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    assert main(["advise", "--json"]) == 0
    tree = json.loads(capsys.readouterr().out)
    return {each["topic"]: each for each in tree["advice"]} | {"": tree}


def test_json_has_every_topic(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = advise(capsys)
    assert found["loader workers"]["choice"] == "0"
    assert found["loader backend"]["choice"] == "packed"
    assert str(found["loader backend"]["buys"]).startswith("25.00×")
    assert found["precision"]["choice"] == "bf16" and "3.00×" in str(found["precision"]["buys"])
    assert found[""]["measured_here"] is True
    for topic in ("strategy", "batch size"):
        assert found[topic]["choice"] == "" and "dvc repro" in str(found[topic]["sure"])


def test_text_says_what_each_choice_buys_and_what_is_missing(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["advise"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("On this machine, read with no workers (packed).")
    assert "\nprecision: bf16\n  buys     3.00×" in text and "-S train.precision=bf16" in text
    assert "\nstrategy: not known\n  missing  results/strategies" in text


def test_the_measurements_decide(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same words with other numbers behind them say something else."""
    write_steps(study, fp32=0.1, bf16=0.3)
    assert advise(capsys)["precision"]["choice"] == "fp32"
    write_steps(study, fp32=0.1, bf16=0.1)
    found = advise(capsys)["precision"]
    assert (found["choice"], found["decided"]) == ("fp32", True)  # as fast, and plainer


def test_another_machine_is_told(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_result(study / "hardware.json", replace(inspect_hardware(), cores=128, gpus=("A card",)))
    tree = advise(capsys)[""]
    assert tree["measured_here"] is False
    (note, *_) = tree["notes"]  # type: ignore[misc]
    assert "cores 128 then" in str(note) and "dvc repro" in str(note)


def test_nothing_measured_is_one_line(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(study / "results")
    assert main(["advise"]) == 1
    printed = capsys.readouterr()
    assert printed.err == (
        "error: nothing was measured in this folder yet; run `dvc repro`, or `dvc checkout`\n"
    )
    assert printed.out == ""
