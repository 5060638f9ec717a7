"""Shared by the stages: paths, params, origin of a run, MLflow's store, and the end of a stage."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, cast

from parashot.command import guarded, output
from parashot.errors import ParamsError
from parashot.hardware import inspect_hardware
from parashot.knobs import select
from parashot.lifetime import end_in_order, end_with_parent
from parashot.parallel.server import joined_by_torchrun
from parashot.params import Params
from parashot.parsing import parse, read_yaml
from parashot.progress import OneLine
from parashot.records import Provenance, read_result
from parashot.tracking import Store
from parashot.train.records import Choices, resolve_auto

HARDWARE = Path("hardware.json")
SOURCE = Path("source.json")
RAW = Path("data/raw")
SPLIT = Path("data/split")
PACKED = Path("data/packed")
RESULTS = Path("results")
CHOICES = RESULTS / "choices.json"
EMBEDDING = RESULTS / "embedding.safetensors"
REPORTS = Path("reports")

PARAMS, GRAPH = Path("params.yaml"), Path("dvc.yaml")
LAUNCHERS = {"DVC_STAGE", "TORCHELASTIC_RUN_ID"}
"""Variables by which a stage is known to be started by DVC or by torchrun."""
CODE = ("src", "stages", "params.yaml", "dvc.yaml")
CHANGES = ("git", "status", "--porcelain", "--untracked-files=no", "--")


def stage(main: Callable[[], object], *, joins_torchrun: bool = False) -> None:
    """Run a stage: progress goes to stderr; an error that the user can mend is one line and exit code 1."""
    if joined_by_torchrun() and not joins_torchrun:
        sys.exit("error: torchrun starts stages.train alone; run this stage without it")
    end_in_order()
    if LAUNCHERS & os.environ.keys():
        end_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[OneLine()])
    sys.exit(guarded(main))


def params() -> Params:
    """Return params.yaml of the workspace that DVC runs in."""
    tree = read_yaml(PARAMS)
    try:
        return parse(Params, tree)
    except ParamsError as error:
        # `dvc exp run -S` has written the value there, and every later run would meet it again
        mend = f"{PARAMS} keeps it: correct it there, or drop all its changes by `git checkout {PARAMS}`"
        raise ParamsError(f"{error}; {mend}") from error


def resolved_params() -> Params:
    """Return params.yaml with the choices of stage `tune` where it says `auto` of a step."""
    return resolve_auto(params(), read_result(Choices, CHOICES))


def provenance(name: str, settings: Params) -> Provenance:
    """Return the origin of the runs of stage `name`: the params that dvc.yaml lists for it, and the tags.

    No other params: a run that DVC restores from its cache would show values it was not made with.
    """
    graph = cast("dict[str, Any]", read_yaml(GRAPH))
    listed = [
        key
        for each in graph["stages"][name]["params"]
        for key in ([each] if isinstance(each, str) else each[PARAMS.name])
    ]
    return Provenance(select(settings, listed), tags())


@cache
def tags() -> dict[str, str]:
    """Return the tags of every run that a stage records: its code, its experiment and its machine."""
    machine = inspect_hardware()
    return {
        "dvc.stage": os.environ.get("DVC_STAGE", ""),
        "dvc.experiment": os.environ.get("DVC_EXP_NAME", ""),
        "git.commit": output(Path(), "git", "rev-parse", "HEAD"),
        "git.dirty": str(bool(output(Path(), *CHANGES, *CODE))).lower(),
        "hardware": str(machine),
    }


def root() -> Path:
    """Return the checkout that the user works in, also for an experiment in a temporary workspace.

    MLflow's store and relative paths belong there.
    """
    return Path(os.environ.get("DVC_ROOT", Path(__file__).resolve().parents[1]))


def scratch() -> Path:
    """Return the folder of unfinished work, which DVC ignores."""
    return root() / ".scratch"


def store(settings: Params) -> Store:
    """Return MLflow's store: the user's own, else beside the code, where a plain `mlflow ui` finds it."""
    return Store.of_environment(root(), settings.tracking.experiment)
