"""Commands about the study in this folder: `parashot advise`, `summary`, `predict` and `clean`."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import study_builder as build
from command_line import Commands
from study_files import write_folder, write_study

from parashot.cli.shared import study_here
from parashot.errors import ParamsError
from parashot.hardware import inspect_hardware
from parashot.knobs import write_settings
from parashot.params import load_params
from parashot.questions.results import StudyResults
from parashot.questions.summary import export
from parashot.records import write_result


@pytest.fixture
def study(here: Path) -> Path:
    """A folder with half a study: the loader and the way of a step, and two figures."""
    loading = {("jpeg", 0): 0.3, ("jpeg", 2): 0.2, ("packed", 0): 0.1, ("packed", 2): 0.12}
    loader = build.loader_results({"packed": {0: 0.2, 2: 0.1}}, own=0.0, loading=loading)
    tune = build.tune_results({("split", "fp32"): 0.3, ("split", "bf16"): 0.1}, own=0.0)
    write_study(here, StudyResults(hardware=inspect_hardware(), tune=tune, loader=loader))
    (here / "reports/figures").mkdir(parents=True)
    for name in ("overview", "batchsz"):
        (here / f"reports/figures/{name}.png").write_bytes(b"a picture")
    (here / "reports/index.html").write_text("the report")
    shutil.copyfile(Path(__file__).parents[1] / "params.yaml", here / "params.yaml")
    return here


@pytest.mark.parametrize("name", ["summary", "predict", "sweep", "clean"])
def test_a_folder_of_no_study_is_the_wrong_one(name: str, here: Path, command: Commands) -> None:
    assert command.refused(name, status=2).startswith(f"{here}: no study here")


def test_nothing_measured_is_one_line(study: Path, command: Commands) -> None:
    shutil.rmtree(study / "results")
    for name in ("advise", "summary"):
        told = command.refused(name)
        assert told.startswith("nothing was measured in this folder yet; run `dvc repro`")


# --- advise -------------------------------------------------------------------------------------------


def test_advice_has_every_topic_and_tells_of_another_machine(study: Path, command: Commands) -> None:
    """What each choice buys, and what is missing, as text and as JSON."""
    text = command("advise")
    assert "\ncomputing: bf16 with pairing split\n  buys     3.00×" in text
    assert "-S loader.workers=0 -S train.precision=bf16" in text
    assert "\nstrategy: not known\n  missing  results/strategies" in text
    tree = json.loads(command("advise", "--json"))
    found = {each["topic"]: each for each in tree["advice"]}
    assert found["loader"]["choice"] == "packed with no workers"
    assert found["loader"]["buys"].startswith("3.00×")
    assert found["computing"]["choice"] == "bf16 with pairing split"
    assert tree["measured_here"] is True
    assert tree["settings"] == study_here().settings
    for topic in ("strategy", "all of it", "batch size"):
        assert found[topic]["choice"] == "" and "dvc repro" in found[topic]["sure"]

    write_result(study / "hardware.json", replace(inspect_hardware(), cores=128, gpus=("A card",)))
    tree = json.loads(command("advise", "--json"))
    assert tree["measured_here"] is False
    assert "cores 128 then" in tree["notes"][0] and "dvc repro" in tree["notes"][0]


def test_params_that_are_not_those_of_the_report_are_noted(study: Path, command: Commands) -> None:
    (study / "results/summary.json").write_text(json.dumps(export(study_here())), encoding="utf-8")
    assert "has changed" not in command("advise")
    write_settings(study / "params.yaml", {"train.batchsz": 4})
    assert "params.yaml has changed since the last report" in command("advise")


def test_apply_writes_all_of_it_and_keeps_the_comments(study: Path, command: Commands) -> None:
    """The file's own, and those that a user adds above, between and beside sections."""
    file = study / "params.yaml"
    text, mine = file.read_text(encoding="utf-8"), "\n# mine, between\ntrain:  # mine, beside"
    file.write_text("# mine, above\n\n" + text.replace("\ntrain:", mine, 1), encoding="utf-8")
    write_settings(file, {"loader.workers": 7, "train.precision": "fp32"})
    before = file.read_text(encoding="utf-8")
    assert before.startswith("# mine, above\n")
    assert "# mine, between\n" in before and "# mine, beside\n" in before
    assert "written into params.yaml" in command("advise", "--apply")
    params = load_params(file)
    assert (params.loader.workers, params.train.precision, params.model.pairing) == (0, "bf16", "split")
    lines = zip(before.splitlines(), file.read_text(encoding="utf-8").splitlines(), strict=True)
    changed = [(old, new) for old, new in lines if old != new]
    keys = {old.split()[0] for old, _ in changed}
    assert keys <= {"workers:", "precision:", "pairing:", "compile:", "backend:"}
    assert all(old.partition("#")[2] == new.partition("#")[2] for old, new in changed)


def test_a_setting_that_is_not_allowed_leaves_params_as_they_were(study: Path) -> None:
    file = study / "params.yaml"
    before, names = file.read_bytes(), sorted(study.iterdir())
    for wrong in ({"loader.workers": -1}, {"loader.no_such": 1}):
        with pytest.raises(ParamsError, match="loader"):
            write_settings(file, wrong)
        assert (file.read_bytes(), sorted(study.iterdir())) == (before, names)
    (study / "other.yaml").write_text("a: [")
    with pytest.raises(ParamsError):
        write_settings(study / "other.yaml", {"loader.workers": 1})


# --- summary ------------------------------------------------------------------------------------------


def test_the_study_is_printed_as_tables_or_json_and_what_is_missing_is_told(
    study: Path, command: Commands
) -> None:
    page = command("summary", "--title", "Mine")
    assert page.startswith("# Mine\n") and "| packed | 2 |" in page and "| 2.00× " in page
    assert "*Missing: strategies. " in page
    assert json.loads(command("summary", "--json")) == json.loads(json.dumps(export(study_here())))


def test_a_folder_is_written_and_written_again_where_there_is_a_report(
    study: Path, command: Commands
) -> None:
    for _ in range(2):
        command("summary", "--to", "mine")
    names = {each.name for each in (study / "mine").iterdir()}
    assert names == {"README.md", "report.html", "params.yaml", "overview.png", "batchsz.png"}
    assert "![overview](overview.png)\n\n![batchsz](batchsz.png)" in (study / "mine/README.md").read_text()
    (study / "reports/index.html").unlink()
    command.refused("summary", "--to", "another", status=2)
    assert not (study / "another").exists()


def test_what_holds_something_else_is_left_alone(study: Path, command: Commands) -> None:
    before = {each: each.read_bytes() for each in study.rglob("*") if each.is_file()}
    for place in (".", "results", "params.yaml"):
        command.refused("summary", "--to", place, status=2)
    assert {each: each.read_bytes() for each in study.rglob("*") if each.is_file()} == before


# --- predict ------------------------------------------------------------------------------------------


@pytest.fixture
def timed(here: Path) -> Path:
    """Steps of two replicas, and their messages. Returns their folder."""
    folder = here / "results/strategies"
    write_folder(folder, build.strategy_results(own=0.0))
    return folder


def test_a_table_of_every_number_of_devices(timed: Path, command: Commands) -> None:
    printed = command("predict", "--gpus", "4,1,2", "--link", "ethernet-10g")
    rows = [line.split() for line in printed.splitlines() if line.startswith("ethernet-10g")]
    assert [row[1:5] for row in rows[:3]] == [["strong", str(n), str((n + 1) // 2), "16"] for n in (1, 2, 4)]
    assert len(rows) == 6 and "The model checked here" in printed and command.said == ""


def test_json_has_every_digit(timed: Path, command: Commands) -> None:
    words = ["predict", "--gpus", "64", "--link", "12.5,5", "--per-node", "8", "--batchsz", "128", "--json"]
    tree = json.loads(command(*words))
    strong, weak = tree["rows"]
    assert (strong["nodes"], strong["batchsz"], weak["batchsz"]) == (8, 128, 8192)
    seconds = strong["seconds_per_step"]
    assert seconds["low"] <= seconds["value"] <= seconds["high"]
    assert weak["efficiency"]["value"] == pytest.approx(weak["speedup"]["value"] / 64)
    assert [row["variant"] for row in tree["checked"]] == ["serial", "ddp"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--link", "token-ring"], "link 'token-ring' is unknown; choose one of here, ethernet-1g, "),
        (["--within", "1,x"], "link '1,x' is unknown"),
        (["--gpus", "0"], "--gpus '0': whole numbers from 1"),
    ],
)
def test_what_was_asked_wrongly_is_one_line(
    timed: Path, command: Commands, words: list[str], line: str
) -> None:
    assert command.refused("predict", *words, status=2).startswith(line)


def test_what_was_not_measured_says_what_to_run(timed: Path, command: Commands) -> None:
    (timed / "cost_steps.csv").unlink()
    assert "run `dvc repro -f -s strategy-bench`" in command.refused("predict")
    (timed / "variants.csv").unlink()
    line = command.refused("predict")
    assert line.startswith("results/strategies/variants.csv: cannot be read") and "run `dvc repro`" in line


# --- clean --------------------------------------------------------------------------------------------

KEPT = {"results/a.json", "data/raw/a.jpg", "mlruns/.gitkeep", ".dvc/cache/x", "dvc.yaml", "params.yaml"}
OF_MLFLOW = {"mlflow.db", "mlflow.db-wal", "mlruns/parashot/1/artifacts/a.txt"}


def test_nothing_goes_without_yes_then_one_kind_and_then_all_and_elsewhere_nothing(
    here: Path, monkeypatch: pytest.MonkeyPatch, command: Commands
) -> None:
    """In a folder with all that a study leaves, and in a project of the user's own."""

    def there() -> set[str]:
        return {each.relative_to(here).as_posix() for each in here.rglob("*") if each.is_file()}

    before = KEPT | OF_MLFLOW | {".scratch/abc/step_100.pt"}
    for name in before:
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text("batchsz_study: {}")
    listed = command("clean")
    assert "would remove .scratch\n" in listed and "mlflow" not in listed
    command("clean", "mlflow")
    found = json.loads(command("clean", "checkpoints", "--json"))
    assert found == {"removed": False, "files": [".scratch"]}
    command.refused("clean", "everything", "--yes", status=2)
    (here / "params.yaml").write_text("training: {}")  # of another project
    assert "no study here" in command.refused("clean", "--yes", status=2)
    assert there() == before
    (here / "params.yaml").write_text("batchsz_study: {}")
    command("clean", "--yes", "checkpoints", "checkpoints")
    assert there() == KEPT | OF_MLFLOW
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///own.db")  # whose files are in mlruns too
    assert "own.db" in command.refused("clean", "mlflow", "--yes", status=2)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    command("clean", "mlflow", "--yes")
    assert there() == KEPT
