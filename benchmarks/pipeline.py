"""What is paid before anything is computed: processes, modules, a study that has nothing to do."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.finished import finished_study
from benchmarks.finished import run as run_command
from benchmarks.outcome import RESAMPLING, Cell, Outcome, Table
from benchmarks.probes import Probe, in_turn, rounds
from benchmarks.scratch import ROOT, scratch_folder
from parashot.questions.statistics import median_interval

STATEMENTS = {
    "python -c pass": "pass",
    "import torch": "import torch",
    "import mlflow": "import mlflow",
    "import dvc.repo": "import dvc.repo",
    "modules of the stage hardware": "import stages.hardware",
    "modules of the stage train": "import stages.train",
    "modules of the stage summarize": "import stages.summarize",
    "modules of the stage publish": "import stages.publish",
    "load_params": "import pathlib, parashot.params as p; p.load_params(pathlib.Path('params.yaml'))",
}
"""Programs of one line, each run by `python -c` in the checkout."""

_SCRIPTS = Path(sys.executable).parent


def run(quick: bool) -> Outcome:
    """Every command in turn, timed from outside; the study that is done is left out where `quick`."""
    with ExitStack() as stack:
        probes = [*_python(), *_parashot(), _command("dvc --version", "dvc", "--version")]
        if not quick:
            probes.append(_repro(stack.enter_context(scratch_folder())))
        measured = in_turn(probes, quick)
    rows: list[list[Cell]] = [
        [name, median_interval(series, RESAMPLING)] for name, series in measured.items()
    ]
    table = Table("Fixed costs: a command from its start to its end", ("command", "seconds"), rows)
    return Outcome("pipeline", [table], raw=measured, settings={"rounds": rounds(quick), "quick": quick})


def help_seconds() -> list[float]:
    """Seconds of `parashot --help`, each from start to end."""
    *_, probe = _parashot()
    return in_turn([probe], quick=False)[probe.name]


def _python() -> list[Probe]:
    return [_command(name, sys.executable, "-c", program) for name, program in STATEMENTS.items()]


def _parashot() -> list[Probe]:
    """The command line as a module, and its script where it is installed."""
    probes = [_command("python -m parashot.cli --help", sys.executable, "-m", "parashot.cli", "--help")]
    script = _SCRIPTS / "parashot"
    return [*probes, _command("parashot --help", str(script), "--help")] if script.exists() else probes


def _repro(root: Path) -> Probe:
    """The stages that are always checked run, and DVC finds the others unchanged."""
    finished_study(root)
    return _command("dvc repro, nothing changed", "dvc", "repro", at=root)


def _command(name: str, *command: str, at: Path = ROOT) -> Probe:
    def seconds() -> float:
        begin = time.perf_counter()
        run_command(*command, at=at)
        return time.perf_counter() - begin

    return Probe(name, "s", seconds)
