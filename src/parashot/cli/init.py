"""`parashot init`: a stage of the user's own DVC project that measures his training."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from parashot.cli import PARAMS, PIPELINE, REPORT, TRAINING
from parashot.cli.advise import training_settings
from parashot.cli.shared import is_study, read_sections
from parashot.errors import ParamsError, TaskError, UsageError
from parashot.files import replacing_file
from parashot.knobs import keeping_yaml
from parashot.questions.own.records import RAW

MEANING = """\
The fastest way to train {training} on this machine; `parashot advise --apply` writes it into {params}. \
Add to deps what else the training reads: your modules, your data."""

OUTPUTS = ("index.html", *(f"{name}.csv" for name in RAW))
"""Of the stage, beside advice.json; small enough for git."""


def run(command: argparse.Namespace) -> None:
    """Add the stage and the sections, or nothing."""
    training, file = _training(command.file)
    params = _with_sections(training)
    with replacing_file(PARAMS) as new_params:
        keeping_yaml().dump(params, new_params)
        _add_stage(training, file)
    print(f"stage measure is in {PIPELINE}, and what it reads in {PARAMS}; next:")
    print("    dvc repro measure         # takes the minutes of measure.budget")
    print(f"    parashot advise --apply   # writes the fastest way into {PARAMS}")


def _training(named: Path) -> tuple[Path, Path]:
    """Return FILE or FILE:NAME to measure, and FILE, seen from this folder.

    Raises `UsageError` or `TaskError`.
    """
    from parashot.tasks.own import split_name

    if not Path(".dvc").is_dir():
        raise UsageError(f"{Path.cwd()}: no DVC project; go to the folder of yours, or run `dvc init` first")
    if is_study():
        raise UsageError(f"{PARAMS} is that of a study; run it in a DVC project of your own")
    file, _ = split_name(named)
    if not file.is_file():
        raise TaskError(f"{file}: no such file; name a Python file as for `parashot measure`")
    training, file = (Path(os.path.relpath(each)) for each in (named, file))
    if not re.fullmatch(r"[\w./+-]+", str(file)):
        raise TaskError(f"{file}: {PIPELINE} wants a name of letters, digits and ._+-; rename it")
    return training, file


def _with_sections(training: Path) -> Any:
    """Return params.yaml with the sections that it lacks; training begins as the plain way."""
    from parashot.parallel.context import resolve_placement
    from parashot.questions.own.candidates import plain_way
    from parashot.questions.own.measure import own_parallel
    from parashot.tasks.own import OwnTask

    params = read_sections(PARAMS, may_lack=True)
    default = plain_way(OwnTask(training), resolve_placement(own_parallel()))
    sections = {
        "measure": ("of `parashot measure`; budget: minutes", {"budget": 10}),
        TRAINING: ("how to train; `parashot advise --apply` sets it", training_settings(asdict(default))),
    }
    for name, (meaning, entries) in sections.items():
        if name not in params:
            params[name] = entries
            params.yaml_add_eol_comment(meaning, name)
    if not isinstance(params["measure"], dict) or "budget" not in params["measure"]:
        raise ParamsError(f"{PARAMS} has a section measure without the budget of a stage measure; rename it")
    return params


def _add_stage(training: Path, file: Path) -> None:
    """Let DVC add the stage. Raises `ParamsError` with what it says where it does not."""
    words = [sys.executable, "-m", "dvc", "stage", "add", "--name", "measure"]
    words += ["--desc", MEANING.format(training=training.as_posix(), params=PARAMS)]
    words += ["--deps", file.as_posix(), "--params", "measure"]
    words += ["--metrics-no-cache", f"{REPORT}/advice.json"]
    for name in OUTPUTS:
        words += ["--outs-no-cache", f"{REPORT}/{name}"]
    words.append(f"parashot measure {training.as_posix()} --budget ${{measure.budget}}")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ParamsError(f"`dvc stage add`: {' '.join(done.stderr.split())}")
