"""What every stage shares: where things are, what the run is called, and how it ends."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

from parashot.command import guarded
from parashot.lifetime import end_in_order, end_with_parent
from parashot.params import Params, load_params
from parashot.progress import OneLine

HARDWARE = Path("hardware.json")
SOURCE = Path("source.json")
RAW = Path("data/raw")
SPLIT = Path("data/split")
PACKED = Path("data/packed")
RESULTS = Path("results")
REPORTS = Path("reports")

LAUNCHERS = {"DVC_STAGE", "TORCHELASTIC_RUN_ID"}
"""Variables by which DVC and torchrun tell a stage that they started it."""


def stage(main: Callable[[], object]) -> None:
    """Run a stage: progress on stderr; an error meant for the user is one line and exit code 1."""
    end_in_order()
    if LAUNCHERS & os.environ.keys():
        end_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[OneLine()])
    sys.exit(guarded(main))


def params() -> Params:
    """params.yaml of the workspace DVC runs in."""
    return load_params(Path("params.yaml"))


def root() -> Path:
    """The checkout the user works in.

    MLflow's store and relative paths belong there, also for `dvc exp run --temp`.
    """
    return Path(os.environ.get("DVC_ROOT", Path(__file__).resolve().parents[1]))


def scratch() -> Path:
    """Where unfinished work lives, out of DVC's sight."""
    return root() / ".scratch"
