"""Fixed costs are taken of commands that really ran, and a study that is done has nothing to do."""

from __future__ import annotations

import math
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from benchmarks import pipeline
from benchmarks.finished import TINY, environment, finished_study, run
from benchmarks.outcome import Outcome
from parashot.errors import DeviceError
from parashot.params import load_params, read_yaml
from parashot.questions.statistics import Interval
from parashot.recipes import apply

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return pipeline.run(quick=True)


@pytest.mark.slow
def test_every_command_takes_time(outcome: Outcome) -> None:
    (table,) = outcome.tables
    names = [row[0] for row in table.rows]
    assert {*pipeline.STATEMENTS, "python -m parashot.cli --help", "dvc --version"} <= set(names)
    for name, seconds in table.rows:
        assert isinstance(seconds, Interval)
        assert 0 < seconds.low <= seconds.value <= seconds.high < math.inf
        assert len(outcome.raw[str(name)]) == outcome.settings["rounds"]


@pytest.mark.slow
def test_quick_leaves_the_study_out(outcome: Outcome) -> None:
    assert not any(name.startswith("dvc repro") for name in outcome.raw)


def test_the_smallest_study_is_one(tmp_path: Path) -> None:
    tree = read_yaml(ROOT / "params.yaml")
    assert isinstance(tree, dict)
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(apply(tree, TINY)), encoding="utf-8")
    assert load_params(path).train.episodes == TINY["train.episodes"]


def test_a_command_that_fails_is_one_line() -> None:
    program = "import sys; sys.exit('Traceback\\nerror: the disk is full\\nERROR: failed to reproduce')"
    with pytest.raises(DeviceError, match=r"ended with 1: error: the disk is full$") as error:
        run("python", "-c", program)
    assert "\n" not in str(error.value).partition("ended")[2]
    with pytest.raises(DeviceError, match="ended with 3: it said nothing"):
        run("python", "-c", "raise SystemExit(3)")
    with pytest.raises(DeviceError, match="no-such-program cannot be started"):
        run("no-such-program")


def test_commands_run_this_checkout_with_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DVC_EXP_NAME", "other")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "elsewhere")
    kept = environment()
    assert not [name for name in kept if name.startswith("MLFLOW_") or name == "DVC_EXP_NAME"]
    assert shutil.which("python", path=kept["PATH"]) == str(Path(sys.executable).parent / "python")
    assert run("python", "-c", "import parashot; print(parashot.__file__)").strip() == str(
        ROOT / "src/parashot/__init__.py"
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_study_that_is_done_has_nothing_to_do(tmp_path: Path) -> None:
    finished_study(tmp_path)
    output = run("dvc", "repro", at=tmp_path)
    running = {line.split("'")[1] for line in output.splitlines() if line.startswith("Running stage")}
    assert running == {"hardware", "source", "publish"}
