"""What one check found, what that means for training here, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Check:
    """One line of the doctor's list. A `warning` costs speed, space or comfort; a `problem` stops a study."""

    topic: str
    found: str
    means: str
    verdict: Verdict = "ok"
    fix: str = ""  # of what is not ok
