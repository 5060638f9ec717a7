"""`parashot clean`: remove what can be made again. DVC's own cache is left to `dvc gc --workspace`."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from parashot.cli import PIPELINE, REMOVED
from parashot.errors import UsageError


def run(command: argparse.Namespace) -> None:
    """List what the kinds remove, and remove it where that was asked for."""
    root = Path.cwd()
    if not (root / PIPELINE).exists():
        raise UsageError(f"{root}: no dvc.yaml here; run it in the folder of the project")
    for kind in command.kinds:
        if kind not in REMOVED:
            raise UsageError(f"{kind}: not one of {', '.join(REMOVED)}")
    patterns = [pattern for kind in command.kinds or REMOVED for pattern in REMOVED[kind]]
    for place in sorted(each for pattern in patterns for each in root.glob(pattern)):
        if place.name == ".gitkeep":
            continue
        print(f"{'removed' if command.yes else 'would remove'} {place.relative_to(root)}")
        if command.yes:
            shutil.rmtree(place) if place.is_dir() else place.unlink()
