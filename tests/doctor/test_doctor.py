"""The doctor: what each check says of a good and of a bad machine or checkout, with the fix beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from command_line import Commands
from PIL import Image
from tiny_data import project_tree, tiny_params, tiny_tree

from parashot.doctor import checkout, machine
from parashot.doctor.room import study_bytes
from parashot.hardware import inspect_hardware
from parashot.knobs import write_settings
from parashot.parallel.context import Placement
from parashot.params import Params
from parashot.parsing import Value, parse
from parashot.recipes import load_recipe

pytestmark = pytest.mark.usefixtures("one_core")
ROOT = Path(__file__).parents[2]
HARDWARE = inspect_hardware()

COPIES = "DVC version: 3.67\nCache types: copy\n"
NOWHERE = tiny_params({"data.source": "miniimagenet", "data.archive": "not/there"})
BAD: dict[str, tuple[Callable[[Path], machine.Check], str, str]] = {
    "one core": (lambda _: machine.cores(replace(HARDWARE, cores=1, gpus=()), 8), "warning", "2 or more"),
    "little memory": (lambda _: machine.memory(4), "warning", "train.recompute=true"),
    "a driver alone": (lambda _: machine.gpus((), True), "warning", "nvidia-smi"),
    "another python": (lambda _: checkout.python("/bin/python", "/usr", "/me/.venv"), "problem", "activate"),
    "no python": (lambda _: checkout.python(None, "", "/me/.venv"), "problem", "not on the path"),
    "no DVC": (lambda _: checkout.cache(""), "problem", "make setup"),
    "no links": (lambda _: checkout.cache(COPIES), "warning", "dvc cache dir"),
    "no room": (lambda folder: checkout.disk(folder, 2**60), "problem", "parashot clean"),
    "too many replicas": (lambda _: machine.replicas(Placement("cpu", 4, 1, 2), 0), "warning", "take turns"),
    "too many for GPUs": (lambda _: machine.replicas(Placement("cuda", 4, 1, 8), 2), "warning", "left out"),
    "no images": (lambda folder: checkout.images(folder, NOWHERE.data), "problem", "data.archive"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_has_its_fix(case: str, tmp_path: Path) -> None:
    look, verdict, words = BAD[case]
    found = look(tmp_path)
    assert found.verdict == verdict and found.fix
    assert words in f"{found.found} {found.means} {found.fix}"


def test_a_git_identity_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, os.devnull)
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    assert checkout.git(tmp_path).verdict == "warning"
    for key in ("name", "email"):
        subprocess.run(["git", "-C", tmp_path, "config", f"user.{key}", "someone"], check=True)
    assert checkout.git(tmp_path).verdict == "ok"


def of_recipe(name: str) -> Params:
    return parse(Params, project_tree(load_recipe(name).settings))


def test_the_room_that_a_study_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine/cats").mkdir(parents=True)
    (tmp_path / "mine/cats/1.jpg").write_bytes(b"x" * 1000)
    # no picture, though P1 begins one
    (tmp_path / "mine/cats/notes.txt").write_bytes(b"P1 is the best one.".ljust(1000))
    mine = tiny_params({"data.source": "folder", "data.archive": "mine"})
    assert study_bytes(mine, tmp_path) == 2 * 2000 + 2 * 3 * mine.data.pack_size**2
    for number in range(2):
        Image.new("RGB", (200, 100)).save(tmp_path / f"mine/cats/same{number}.png")
    raw = sum(each.stat().st_size for each in (tmp_path / "mine/cats").iterdir())
    assert study_bytes(mine, tmp_path) == 2 * raw + 4 * 3 * 200 * 100, "packing keeps the one size there is"
    archive = tmp_path / "mine.tar"
    archive.write_bytes(bytes(10_000))
    packed = replace(mine, data=replace(mine.data, archive="mine.tar"))
    assert study_bytes(packed, tmp_path) >= 2 * 10_000
    with monkeypatch.context() as patch:
        patch.setattr(Image, "MAX_IMAGE_PIXELS", 100)  # Pillow refuses to open what has twice as many
        assert study_bytes(mine, tmp_path) == 2 * raw + 4 * 3 * mine.data.pack_size**2
    assert study_bytes(of_recipe("miniimagenet"), tmp_path) > 1e9 > study_bytes(tiny_params(), tmp_path)


@pytest.fixture
def study(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (here / "params.yaml").write_text(yaml.safe_dump(tiny_tree()))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return here


def test_the_command_lists_and_ends_with_1_where_a_study_would_stop(study: Path, command: Commands) -> None:
    printed = command("doctor", status=1)  # a bare folder is no git repository
    assert "PROBLEM git" in printed and "fix: clone the project with git" in printed
    assert command.said == "error: a study would stop here: git; see the fix beside each\n"
    subprocess.run(["git", "init", "--quiet", study], check=True)
    checks = {each["topic"]: each for each in json.loads(command("doctor", "--json"))["checks"]}
    assert {"cores", "memory", "GPUs", "precision", "exchange", "shared memory", "git"} <= checks.keys()
    assert all(each["found"] and each["means"] for each in checks.values())
    assert all(each["verdict"] == "ok" or each["fix"] for each in checks.values())
    assert {each["verdict"] for each in checks.values()} <= {"ok", "warning"}
    assert HARDWARE.cpu_model in checks["cores"]["found"]


def test_elsewhere_the_machine_alone_is_checked(here: Path, command: Commands) -> None:
    (here / "params.yaml").write_text("lr: 0.1\n")  # of another project
    printed = command("doctor")
    assert "ok      cores" in printed and "only the machine was checked" in printed


@pytest.mark.skipif(bool(HARDWARE.gpus), reason="there is a CUDA device here")
def test_params_that_cannot_run_here_are_a_problem_among_others(study: Path, command: Commands) -> None:
    """Nor can a pretraining that cannot be compiled here."""
    settings: dict[str, Value] = {"pretrain.epochs": 1, "pretrain.compile": "reduce-overhead"}
    write_settings(study / "params.yaml", settings)
    refusal = "pretrain.compile: reduce-overhead is not possible on cpu here"
    assert refusal in command("doctor", status=1)
    write_settings(study / "params.yaml", {**settings, "pretrain.epochs": 0})
    assert "pretrain.compile" not in command("doctor", status=1)
    write_settings(study / "params.yaml", {"parallel.device": "cuda"})
    printed = command("doctor", status=1)
    assert "PROBLEM params" in printed and "no CUDA device" in printed
    assert "ok      cores" in printed
    assert command.said.startswith("error: a study would stop here: git, params")
