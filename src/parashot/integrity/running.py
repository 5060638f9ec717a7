"""What is being written now: it cannot be judged."""

from __future__ import annotations

import json
from pathlib import Path

import psutil


def written_now(root: Path) -> set[Path]:
    """Outputs of the stages that a living DVC runs in `root`, by its own file of locks."""
    try:
        writers = json.loads((root / ".dvc/tmp/rwlock").read_text(encoding="utf-8")).get("write", {})
        return {Path(path) for path, writer in writers.items() if psutil.pid_exists(writer["pid"])}
    except (OSError, ValueError, AttributeError, TypeError, KeyError):  # no such file, or not of this form
        return set()
