"""The code that a training's result depends on, as a name."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

_PARTS = (
    "data",
    "model",
    "parallel",
    "params",
    "tasks",
    "train",
    "allocator.py",
    "hardware.py",
    "records.py",
    "task.py",
)
"""Parts of parashot: those that dvc.yaml lists for a training, and params, which say what knobs mean."""


@cache
def code_digest() -> str:
    """Name the code that trains: other code has another name."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        name = file.relative_to(package)
        if name.parts[0] in _PARTS:
            digest.update(f"{name.as_posix()}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:12]
