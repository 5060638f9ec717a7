"""The result of one check, and the output of programs that checks ask."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Verdict = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Check:
    """What was found, what that means for training here, and the fix of what is not ok.

    A `warning` costs speed, space or comfort; a `problem` stops a study.
    """

    topic: str
    found: str
    means: str
    verdict: Verdict = "ok"
    fix: str = ""


def output(folder: Path, *command: str) -> str:
    """What a program run in `folder` prints; empty where it is not there, fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
