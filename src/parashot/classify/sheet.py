"""A sheet to look at: every picture with the class it is taken for, in one HTML file of its own."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image

from parashot.classify.pictures import read_picture
from parashot.classify.verdicts import Verdict
from parashot.plain import printable
from parashot.report.templates import render

_SIDE = 160
"""Pixels of a thumbnail's longer side."""

_BARS = 4
"""Classes shown for each picture."""


def sheet(verdicts: Sequence[Verdict], shots: Mapping[str, Sequence[Path]], weights: str) -> str:
    """Render the sheet; nothing in it is fetched from anywhere. `weights` says whose verdicts these are."""
    classes = [printable(label) for label in shots]
    return render(
        "classify/sheet.html.j2",
        pictures=[(each.path, printable(each.path.name), each.ranked(classes)[:_BARS]) for each in verdicts],
        shots=list(zip(classes, shots.values(), strict=True)),
        weights=printable(weights),
        thumbnail=_thumbnail,
    )


def _thumbnail(path: Path) -> str:
    """Return a small copy of a picture as the address of an image within the page."""
    image = Image.fromarray(read_picture(path))
    image.thumbnail((_SIDE, _SIDE))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=85)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"
