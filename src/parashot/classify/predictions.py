"""Predicted classes of pictures, for people and for programs: a table, CSV, JSON, and a sheet to look at."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from parashot.classify.pictures import read_picture
from parashot.plain import aligned, cell, printable
from parashot.templates import render

_COLUMNS = 8
"""With more classes, the table for people shows each picture's best ones only."""

_SIDE = 160
"""Pixels of the longer side of a thumbnail in the sheet."""

_BARS = 4
"""Classes that the sheet shows for each picture."""


@dataclass(frozen=True)
class Prediction:
    """Scores of one picture, in the order of the classes.

    least: what the highest of them has to reach; below it the picture shows none of the classes.
    """

    path: Path
    scores: tuple[float, ...]
    least: float = 0.0

    def ranked(self, classes: Sequence[str]) -> list[tuple[str, float]]:
        """Classes with their scores, the best first."""
        return sorted(zip(classes, self.scores, strict=True), key=lambda each: -each[1])

    def best(self, classes: Sequence[str]) -> str | None:
        """The class of the highest score, if that is high enough."""
        name, score = self.ranked(classes)[0]
        return name if score >= self.least else None

    def shown(self, classes: Sequence[str]) -> str:
        """The same for people."""
        best = self.best(classes)
        return "none of these" if best is None else printable(best)


def as_table(predictions: Sequence[Prediction], classes: Sequence[str], score: str = "score") -> str:
    """Render a row per picture: the predicted class, then the score of each class; `score`: its name."""
    wide = len(classes) <= _COLUMNS
    rows = [["picture", "class", *(map(printable, classes) if wide else (score, "next best", score))]]
    for each in predictions:
        (_, first), (second, next_best) = each.ranked(classes)[:2]
        narrow = [f"{first:.3f}", printable(second), f"{next_best:.3f}"]
        scores = [f"{value:.3f}" for value in each.scores] if wide else narrow
        rows.append([printable(str(each.path)), each.shown(classes), *scores])
    return aligned(rows)


def as_csv(predictions: Sequence[Prediction], classes: Sequence[str]) -> str:
    """Render the same as CSV with every digit, an empty class where none is right."""

    def name(text: str) -> str:
        return cell(printable(text))  # no formula to a spreadsheet

    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["picture", "class", *map(name, classes)])
    for each in predictions:
        writer.writerow([name(str(each.path)), name(each.best(classes) or ""), *each.scores])
    return buffer.getvalue()


def as_json(predictions: Sequence[Prediction], classes: Sequence[str], score: str = "score") -> str:
    """Render the same as JSON, null as class where none is right."""
    pictures = []
    for each in predictions:
        scores = dict(zip(classes, each.scores, strict=True))
        pictures.append({"picture": str(each.path), "class": each.best(classes), "scores": scores})
    tree = {"classes": list(classes), "score": score, "pictures": pictures}
    return json.dumps(tree, indent=2, allow_nan=False) + "\n"


def sheet(
    predictions: Sequence[Prediction], shots: Mapping[str, Sequence[Path]], weights: str, score: str = "score"
) -> str:
    """Render every picture with its class as one HTML page, which fetches nothing. `weights`: the network."""
    classes = list(shots)
    ranked = [(each.path, each.shown(classes), each.ranked(classes)[:_BARS]) for each in predictions]
    names = {"printable": printable, "thumbnail": _thumbnail}
    return render("classify/sheet.html", pictures=ranked, shots=shots, weights=weights, score=score, **names)


def _thumbnail(path: Path) -> str:
    """A small JPEG of a picture as a data URL."""
    image = Image.fromarray(read_picture(path))
    image.thumbnail((_SIDE, _SIDE))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=85)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"


def known_and_right(predictions: Sequence[Prediction], classes: Sequence[str]) -> tuple[int, int]:
    """Count the pictures that lie in a folder called like a class, and those predicted as that class."""
    known = [each for each in predictions if each.path.parent.name in classes]
    return len(known), sum(each.best(classes) == each.path.parent.name for each in known)
