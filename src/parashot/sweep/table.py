"""What a sweep found, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence

from parashot.plain import aligned
from parashot.sweep.grid import shown
from parashot.sweep.run import Outcome, accuracy, seconds


def table(outcomes: Sequence[Outcome], keys: Sequence[str]) -> str:
    """A row for each run: the knobs `keys`, and what came of it."""
    rows = [[*keys, "val accuracy", "seconds", "run"]]
    for each in outcomes:
        found = ["failed", "", each.reason]
        if each.result is not None:
            found = [accuracy(each.result), seconds(each.result), each.folder.name]
        rows.append([*(shown(each.point.settings[key]) for key in keys), *found])
    return aligned(rows)


def as_json(outcomes: Sequence[Outcome]) -> str:
    """The same with full precision; accuracies are shares of 1."""
    runs = [
        {
            "settings": dict(each.point.settings),
            "status": each.status,
            "reason": each.reason,
            "folder": each.folder.as_posix(),
            "val_accuracy": each.result and each.result.val_accuracy,
            "val_accuracy_ci95": each.result and each.result.val_accuracy_ci95,
            "seconds": each.result and each.result.seconds,
        }
        for each in outcomes
    ]
    return json.dumps({"runs": runs}, indent=2, allow_nan=False) + "\n"
