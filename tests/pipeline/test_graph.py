"""dvc.yaml in a real DVC repository: which stages a turned knob or an edited file runs again.

Every command is replaced by one that only writes what its stage declares, so a study takes seconds. DVC
rewrites dvc.lock after each stage, mostly in ruamel.yaml, which keeps comments; here it is JSON, which is
YAML too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any, TextIO

import pytest
import yaml
from checkouts import ROOT, Checkout, copy_project, new_repository
from dvc.repo import Repo
from dvc.utils import strictyaml
from dvc.utils.serialize import _yaml

from parashot.parallel.registry import STRATEGIES
from parashot.parsing import Value

pytestmark = pytest.mark.timeout(300)  # `dvc repro` reads and writes dvc.lock again for each stage

ALWAYS = {"hardware", "source", "publish"}
TRAININGS = {f"train-{name}" for name in STRATEGIES}
THE_SAME_AGAIN = {"hardware.json", "source.json", "results/choices.json"}
"""Outs that come out the same each time; all others differ, so whatever depends on them runs again too."""

TIMINGS = {"tune", "loader-bench", "strategy-bench", "gain"}


@pytest.fixture(scope="module", autouse=True)
def quick_yaml() -> Iterator[None]:
    """DVC reads YAML by libyaml and writes it as JSON in this process."""

    def parse(text: str, path: str, typ: str = "safe") -> Any:
        return json.loads(text) if text.startswith("{") else yaml.load(text, yaml.CSafeLoader) or {}

    def dump(data: Any, stream: TextIO) -> None:
        json.dump(data, stream, indent=1)

    with pytest.MonkeyPatch.context() as patch:
        for reader in (_yaml, strictyaml):
            patch.setattr(reader, "parse_yaml", parse)
        patch.setattr(_yaml, "_dump", dump)
        yield


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A finished study without its code."""
    root = tmp_path_factory.mktemp("graph")
    copy_project(root, (".dvc", ".dvcignore", ".gitignore", "params.yaml"))
    text = (ROOT / "dvc.yaml").read_text(encoding="utf-8")
    stages = yaml.safe_load(text)["stages"]
    for stage in stages.values():
        command = writing([*stage.get("outs", []), *stage.get("plots", [])])
        text = text.replace(f"cmd: {stage['cmd']}\n", f"cmd: {command}\n")
        for code in (each for each in stage.get("deps", []) if each.startswith(("src/", "stages/"))):
            write(root / (code if code.endswith(".py") else f"{code}/code.py"), "code")
    (root / "dvc.yaml").write_text(text, encoding="utf-8")
    checkout = new_repository(root)
    assert repro(checkout) == set(stages)
    return checkout


def repro(checkout: Checkout) -> set[str]:
    """`dvc repro` in this process; return the stages that ran."""
    with chdir(checkout.root), Repo() as repo:
        return {stage.addressing for stage in repo.reproduce(run_cache=False)}  # it has none of these outs


def writing(outs: list[str]) -> str:
    """A command that writes each of `outs`, a file or a folder of one."""
    files = {out: out if Path(out).suffix else f"{out}/file" for out in outs}
    text = {out: "the same" if out in THE_SAME_AGAIN else "$(date +%s%N)" for out in outs}
    commands = [f"mkdir -p {Path(files[out]).parent} && echo {text[out]} > {files[out]}" for out in outs]
    return " && ".join(commands) or "echo nothing"


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.mark.parametrize(
    ("knob", "value", "stages"),
    [
        ("evaluate.test_episodes", 77, {"evaluate"}),
        ("train.batchsz", 60, {*TIMINGS, *TRAININGS, "evaluate"}),
        ("loader.workers", 3, {"batchsz", "warmup", *TRAININGS, "evaluate"}),
        ("parallel.dp.enabled", False, {"strategy-bench", "gain", "train-dp", "evaluate"}),
        ("batchsz_study.sizes", [2, 8], {"batchsz"}),
    ],
)
def test_a_knob_runs_again_what_depends_on_it(
    repository: Checkout, knob: str, value: Value, stages: set[str]
) -> None:
    repository.turn({knob: value})
    assert repro(repository) == {*stages, "summarize", *ALWAYS}


def test_a_file_runs_again_what_uses_it(repository: Checkout) -> None:
    """The report uses page.py; errors.py and what Python compiles compute nothing."""
    for name in ("report/page.py", "errors.py", "data/__pycache__/pack.cpython-311.pyc"):
        write(repository.root / "src/parashot" / name, "edited")
    assert repro(repository) == {"summarize"} | ALWAYS


def test_a_study_is_committed_only_where_asked(repository: Checkout) -> None:
    def study(*words: str) -> str:
        make = ("make", "-f", str(ROOT / "Makefile"), "-o", ".venv/.study", "study", "RUN=true")
        return repository.run(*make, *words).stdout

    before = repository.run("git", "rev-parse", "HEAD").stdout
    assert "git commit -m" in study()
    assert repository.run("git", "rev-parse", "HEAD").stdout == before
    study("BASELINE=yes")
    committed = {*repository.run("git", "show", "--format=", "--name-only").stdout.split()}
    assert {"dvc.lock"} <= committed <= {"dvc.lock", "params.yaml"}
    assert "git commit -m" not in study()
