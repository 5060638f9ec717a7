"""What came of each picture, for people and for programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from parashot.plain import aligned, cell, printable

_COLUMNS = 8
"""With more classes, the table for people shows each picture's best ones only."""


@dataclass(frozen=True)
class Verdict:
    """One picture: its relation score with each class, in the order of the classes."""

    path: Path
    scores: tuple[float, ...]

    def ranked(self, classes: Sequence[str]) -> list[tuple[str, float]]:
        """Classes with their scores, the best first."""
        return sorted(zip(classes, self.scores, strict=True), key=lambda each: -each[1])

    def best(self, classes: Sequence[str]) -> str:
        """The class it is taken for."""
        return self.ranked(classes)[0][0]


def as_table(verdicts: Sequence[Verdict], classes: Sequence[str]) -> str:
    """A row per picture: the class it is taken for, then the score of each class."""
    wide = len(classes) <= _COLUMNS
    names = [printable(name) for name in classes] if wide else ["score", "next best", "score"]
    rows = [["picture", "class", *names]]
    for each in verdicts:
        ranked = each.ranked(classes)
        scores = [f"{score:.3f}" for score in each.scores]
        if not wide:
            (_, first), (second, next_best) = ranked[:2]
            scores = [f"{first:.3f}", printable(second), f"{next_best:.3f}"]
        rows.append([printable(str(each.path)), printable(ranked[0][0]), *scores])
    return aligned(rows)


def as_csv(verdicts: Sequence[Verdict], classes: Sequence[str]) -> str:
    """The same with every digit; no name is a formula to a spreadsheet."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["picture", "class", *map(_cell, classes)])
    for each in verdicts:
        writer.writerow([_cell(str(each.path)), _cell(each.best(classes)), *each.scores])
    return buffer.getvalue()


def _cell(name: str) -> str:
    return cell(printable(name))


def as_json(verdicts: Sequence[Verdict], classes: Sequence[str]) -> str:
    """The same for programs."""
    pictures = [
        {
            "picture": str(each.path),
            "class": each.best(classes),
            "scores": dict(zip(classes, each.scores, strict=True)),
        }
        for each in verdicts
    ]
    return json.dumps({"classes": list(classes), "pictures": pictures}, indent=2, allow_nan=False) + "\n"


def known_and_right(verdicts: Sequence[Verdict], classes: Sequence[str]) -> tuple[int, int]:
    """How many pictures lie in a folder called like a class, and how many of those are taken for it."""
    known = [each for each in verdicts if each.path.parent.name in classes]
    return len(known), sum(each.best(classes) == each.path.parent.name for each in known)
