"""`parashot clean`: remove saved states of unfinished trainings, or MLflow's store in this folder."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from parashot.cli import REMOVED
from parashot.cli.shared import require_study
from parashot.errors import UsageError
from parashot.tracking import Store


def run(command: argparse.Namespace) -> None:
    """List what the kinds remove, and remove it where that was asked for."""
    root = Path.cwd()
    require_study()
    for kind in command.kinds:
        if kind not in REMOVED:
            raise UsageError(f"{kind}: not one of {', '.join(REMOVED)}")
    if "mlflow" in command.kinds and (uri := Store.of_environment(root, "").uri):
        raise UsageError(
            f"mlflow: MLFLOW_TRACKING_URI is {uri}, whose files may be in mlruns; unset it first"
        )
    patterns = [pattern for kind in command.kinds or ["checkpoints"] for pattern in REMOVED[kind]]
    found = sorted({each for pattern in patterns for each in root.glob(pattern) if each.name != ".gitkeep"})
    names = [str(place.relative_to(root)) for place in found]
    for place in found if command.yes else []:
        shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink()
    if command.json:
        print(json.dumps({"removed": command.yes, "files": names}, indent=2))
        return
    for name in names:
        print(f"{'removed' if command.yes else 'would remove'} {name}")
