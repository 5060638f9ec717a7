"""`parashot clean`: remove what can be made again. DVC's own cache is left to `dvc gc --workspace`."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from parashot.cli.arguments import Commands
from parashot.errors import UsageError

PLACES = {"checkpoints": [".scratch"], "mlflow": ["mlflow.db*", "mlruns/*"]}
"""Patterns of what each kind removes."""


def add_parser(commands: Commands) -> None:
    """Add `parashot clean`."""
    parser = commands.add_parser(
        "clean",
        help="remove saved states of unfinished trainings, and MLflow's runs",
        description="Remove checkpoints (unfinished trainings then start from the beginning) and MLflow's "
        "runs (`dvc repro` publishes those in results/ again). `dvc gc --workspace` shrinks DVC's cache.",
    )
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"{' or '.join(PLACES)}; default: all")
    parser.add_argument("--yes", action="store_true", help="remove them; without it they are only listed")
    parser.set_defaults(run=_run)


def _run(command: argparse.Namespace) -> None:
    root = Path.cwd()
    if not (root / "dvc.yaml").exists():
        raise UsageError(f"{root}: no dvc.yaml here; run it in the folder of the project")
    for kind in command.kinds:
        if kind not in PLACES:
            raise UsageError(f"{kind}: not one of {', '.join(PLACES)}")
    patterns = [pattern for kind in command.kinds or PLACES for pattern in PLACES[kind]]
    for place in sorted(each for pattern in patterns for each in root.glob(pattern)):
        if place.name == ".gitkeep":
            continue
        print(f"{'removed' if command.yes else 'would remove'} {place.relative_to(root)}")
        if command.yes:
            shutil.rmtree(place) if place.is_dir() else place.unlink()
