"""`parashot init` in a DVC project of one's own, and `parashot advise` on what its stage measured."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from checkouts import Checkout, new_repository, stages_run
from command_line import Commands
from own_file import advised, results, write_own

from parashot.cli import main
from parashot.hardware import inspect_hardware
from parashot.parallel.context import resolve_placement
from parashot.questions.own.candidates import plain_way
from parashot.questions.own.measure import own_parallel
from parashot.records import Hardware
from parashot.report.own import write_own_report
from parashot.tasks.own import OwnTask

PIPELINE = """\
# mine
stages:
    # makes b
    prepare:
        cmd: cp a.txt b.txt
        deps: [a.txt]  # by hand
        outs: [b.txt]

# --- pictures
plots: []
"""
PARAMS = "lr: 0.1  # of Adam\nsizes: [1,\n  2]"


@pytest.fixture
def folder(here: Path) -> Path:
    """The folder one is in, with a file to measure."""
    write_own(here, "own_train")
    return here


@pytest.fixture
def project(folder: Path) -> Checkout:
    """The same as a git and DVC repository."""
    checkout = new_repository(folder)
    checkout.run("dvc", "init", "--quiet")
    return checkout


def write_report(folder: Path, hardware: Hardware) -> None:
    """As if one way had been twice as fast as the default."""
    default = plain_way(OwnTask(folder / "own_train.py", 6), resolve_placement(own_parallel()))
    found = results({default: 0.4, replace(default, way="fast", workers=3): 0.2})
    write_own_report(folder / "parashot-report", Path("own_train.py"), found, advised(found), hardware)


def test_a_project_without_any_files_of_dvc(project: Checkout, command: Commands) -> None:
    """DVC takes the stage; its outputs are all files of a report; the budget is that of params.yaml."""
    said = command("init", project.root / "own_train.py:Small")
    assert "dvc repro measure" in said and "parashot advise --apply" in said
    write_report(project.root, inspect_hardware())
    project.run("dvc", "commit", "--force", "--quiet")
    assert "up to date" in project.run("dvc", "status").stdout
    lock = yaml.safe_load(project.read("dvc.lock"))["stages"]["measure"]
    assert lock["cmd"] == "parashot measure own_train.py:Small --budget 10"
    assert [each["path"] for each in lock["deps"]] == ["own_train.py"]
    assert {Path(each["path"]) for each in lock["outs"]} == {
        each.relative_to(project.root) for each in (project.root / "parashot-report").iterdir()
    }
    project.turn({"measure.budget": 20})
    assert json.loads(project.run("dvc", "status", "--json").stdout)["measure"]


def test_what_is_there_stays(project: Checkout, command: Commands) -> None:
    """Stage and sections are added to what both files say, and comments are kept."""
    (project.root / "dvc.yaml").write_text(PIPELINE)
    (project.root / "params.yaml").write_text(PARAMS)
    command("init", "own_train.py")
    texts = {name: project.read(name) for name in ("dvc.yaml", "params.yaml")}
    assert re.findall("#.*", texts["dvc.yaml"]) == re.findall("#.*", PIPELINE)
    assert "# of Adam" in texts["params.yaml"] and "# of `parashot measure`" in texts["params.yaml"]
    pipeline, params = map(yaml.safe_load, texts.values())
    assert pipeline["stages"].pop("measure")["params"] == ["measure"]
    assert pipeline == yaml.safe_load(PIPELINE)
    assert params.pop("measure") == {"budget": 10}
    training = params.pop("training")
    assert params == yaml.safe_load(PARAMS)
    chosen = {key: training[key] for key in ("strategy", "replicas", "workers", "precision")}
    assert chosen == {"strategy": "serial", "replicas": 1, "workers": 0, "precision": "fp32"}


@pytest.mark.parametrize(
    ("params", "file", "said"),
    [
        ("measure: {every: 5}\n", "own_train.py", "section measure without the budget"),
        ("- 1\n", "own_train.py", "params.yaml: not a file of sections"),
        ("batchsz_study: {}\n", "own_train.py", "that of a study"),
        ("", "nowhere.py", "nowhere.py: no such file"),
    ],
)
def test_what_cannot_be_added_changes_nothing(
    params: str, file: str, said: str, folder: Path, command: Commands
) -> None:
    (folder / ".dvc").mkdir()
    (folder / "params.yaml").write_text(params)
    before = sorted(folder.iterdir())
    assert said in command.refused("init", file, status=2 if "study" in said else 1)
    assert ((folder / "params.yaml").read_text(), sorted(folder.iterdir())) == (params, before)


def test_what_dvc_refuses_changes_nothing(project: Checkout, command: Commands) -> None:
    pipeline = "stages:\n  measure:\n    cmd: mine\n"
    (project.root / "params.yaml").write_text(PARAMS)
    (project.root / "dvc.yaml").write_text(pipeline)
    before = sorted(project.root.iterdir())
    assert "Stage 'measure' already exists" in command.refused("init", "own_train.py")
    assert [project.read(name) for name in ("dvc.yaml", "params.yaml")] == [pipeline, PARAMS]
    assert sorted(project.root.iterdir()) == before


def test_no_dvc_project(folder: Path, command: Commands) -> None:
    assert "dvc init" in command.refused("init", "own_train.py", status=2)
    assert [each.name for each in folder.iterdir()] == ["own_train.py"]


def test_advice_is_applied_and_comments_are_kept(folder: Path, command: Commands) -> None:
    write_report(folder, inspect_hardware())
    advice = json.loads((folder / "parashot-report/advice.json").read_text())
    (folder / "params.yaml").write_text("lr: 0.1 # mine\ntraining: # how\n  workers: 0 # many\n  lr: 1\n")
    mine = f'lr: 0.1\nanswer: "yes"\nlong: {"word " * 40}end\n'
    (folder / "other.yaml").write_text(mine)
    assert command("advise") == f"{advice['sentence']}\n"
    assert "workers: 0 # many" in (folder / "params.yaml").read_text()
    assert json.loads(command("advise", "--json", "--apply")) == advice
    text = (folder / "params.yaml").read_text()
    assert text.startswith("lr: 0.1 # mine\ntraining: # how\n  workers: 3 # many\n  lr: 1\n")
    settings = {key: value for key, value in advice["advised"].items() if key not in {"way", "batchsz"}}
    assert yaml.safe_load(text)["training"] == {"lr": 1, **settings}
    command("advise", "--apply", "other.yaml")
    other = (folder / "other.yaml").read_text()
    assert other.startswith(mine) and yaml.safe_load(other)["training"] == settings


def test_advice_of_another_machine_or_of_none_is_told(folder: Path, command: Commands) -> None:
    assert "parashot measure FILE" in command.refused("advise")
    write_report(folder, replace(inspect_hardware(), cores=128))
    assert "another machine" in command("advise")
    assert "params.yaml: cannot be read" in command.refused("advise", "--apply")
    (folder / "parashot-report/advice.json").write_text("[]")
    assert "advice.json" in command.refused("advise")


@pytest.mark.slow
def test_dvc_measures(project: Checkout) -> None:
    """Over an older report; then all is up to date, and the advice can be applied."""
    assert main(["init", "own_train.py"]) == 0
    write_report(project.root, inspect_hardware())
    project.turn({"measure.budget": 1})
    project.commit()
    assert stages_run(project.run("dvc", "repro", "measure").stdout) == {"measure"}
    assert "up to date" in project.run("dvc", "status").stdout
    advised = json.loads(project.read("parashot-report/advice.json"))["advised"]
    project.run("parashot", "advise", "--apply")
    assert yaml.safe_load(project.read("params.yaml"))["training"].items() <= advised.items()
    assert "up to date" in project.run("dvc", "status").stdout
    assert "parashot-report/advice.json" in project.run("dvc", "metrics", "show", "--json").stdout
