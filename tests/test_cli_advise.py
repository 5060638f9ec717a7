"""`parashot advise`: what the measurements say, as text, as JSON and in params.yaml; what is missing."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from parashot.cli import main
from parashot.errors import ParamsError
from parashot.hardware import inspect_hardware
from parashot.knobs import write_settings
from parashot.params import load_params
from parashot.questions.loader.records import LoaderBlock
from parashot.questions.step.records import TuneBlock
from parashot.questions.ways.records import EpisodeWay, WayBlock
from parashot.records import write_metrics, write_result, write_rows
from parashot.train.records import Choices

ROUNDS = range(9)
SETTINGS = {
    "loader.backend": "packed",
    "loader.workers": 0,
    "train.precision": "bf16",
    "model.pairing": "split",
    "train.compile": "none",
}
LOADING = {("jpeg", 0): 0.3, ("jpeg", 2): 0.2, ("packed", 0): 0.1, ("packed", 2): 0.12}


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with half a study: the loader and the way of a step, nothing else."""
    loader = tmp_path / "results/loader"
    ways = [
        EpisodeWay(f"{backend}-{workers}", "ddp", 2, 1, 16, workers, "bf16", "none", backend, "split")
        for backend, workers in LOADING
    ]
    blocks = [
        WayBlock(0, number, way.way, 1, seconds * (1 + 0.01 * number), 0.01, 2**20)
        for way, seconds in zip(ways, LOADING.values(), strict=True)
        for number in ROUNDS
    ]
    write_rows(loader / "blocks.csv", LoaderBlock, [])
    write_rows(loader / "ways.csv", EpisodeWay, ways)
    write_rows(loader / "training.csv", WayBlock, blocks)
    write_metrics(loader / "metrics.json", {})
    write_steps(tmp_path, fp32=0.3, bf16=0.1)
    write_result(tmp_path / "hardware.json", inspect_hardware())
    shutil.copyfile(Path(__file__).parents[1] / "params.yaml", tmp_path / "params.yaml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_steps(study: Path, **seconds: float) -> None:
    """As if steps had been timed, by precision, and the fastest one taken."""
    steps = [
        TuneBlock(number, "split", precision, "none", each * (1 + 0.01 * number))
        for precision, each in seconds.items()
        for number in ROUNDS
    ]
    write_rows(study / "results/tune/blocks.csv", TuneBlock, steps)
    fastest = min(seconds, key=lambda precision: seconds[precision])
    write_result(study / "results/choices.json", Choices("split", fastest, "none"))


def advise(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    assert main(["advise", "--json"]) == 0
    tree = json.loads(capsys.readouterr().out)
    return {each["topic"]: each for each in tree["advice"]} | {"": tree}


def test_json_has_every_topic(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = advise(capsys)
    assert found["loader"]["choice"] == "packed with no workers"
    assert str(found["loader"]["buys"]).startswith("3.00×")
    assert found["computing"]["choice"] == "bf16 with pairs by split"
    assert "3.00×" in str(found["computing"]["buys"])
    assert found[""]["measured_here"] is True
    assert found[""]["settings"] == SETTINGS
    for topic in ("strategy", "all of it", "batch size"):
        assert found[topic]["choice"] == "" and "dvc repro" in str(found[topic]["sure"])


def test_text_says_what_each_choice_buys_and_what_is_missing(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["advise"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(
        "On this machine, read packed with no workers; compute in bf16 with pairs by split."
    )
    assert "\ncomputing: bf16 with pairs by split\n  buys     3.00×" in text
    assert "-S loader.workers=0 -S train.precision=bf16" in text
    assert "\nstrategy: not known\n  missing  results/strategies" in text


def test_the_measurements_decide(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same words with other numbers behind them say something else."""
    write_steps(study, fp32=0.1, bf16=0.3)
    assert advise(capsys)["computing"]["choice"] == "fp32 with pairs by split"
    write_steps(study, fp32=0.1, bf16=0.1)
    found = advise(capsys)["computing"]
    assert (found["choice"], found["decided"]) == ("fp32 with pairs by split", True)  # as fast, and plainer


def test_apply_writes_all_of_it_and_keeps_the_comments(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = study / "params.yaml"
    write_settings(file, {"loader.workers": 7, "train.precision": "fp32"})
    before = file.read_text(encoding="utf-8")
    assert main(["advise", "--apply"]) == 0
    assert "written into params.yaml" in capsys.readouterr().out
    params = load_params(file)
    assert (params.loader.workers, params.train.precision, params.model.pairing) == (0, "bf16", "split")
    lines = list(zip(before.splitlines(), file.read_text(encoding="utf-8").splitlines(), strict=True))
    changed = [
        (old.split()[0], old.partition("#")[2] == new.partition("#")[2]) for old, new in lines if old != new
    ]
    assert {key for key, _ in changed} <= {"workers:", "precision:", "pairing:", "compile:", "backend:"}
    assert all(same_comment for _, same_comment in changed)


def test_a_setting_that_is_not_allowed_leaves_params_as_they_were(study: Path) -> None:
    file = study / "params.yaml"
    before = file.read_bytes()
    for wrong in ({"loader.workers": -1}, {"loader.no_such": 1}):
        with pytest.raises(ParamsError, match="loader"):
            write_settings(file, wrong)
        assert file.read_bytes() == before
        assert sorted(each.name for each in study.iterdir()) == ["hardware.json", "params.yaml", "results"]


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
