"""A sheet to look at: every picture with its predicted class, in one HTML file of its own."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image

from parashot.classify.pictures import read_picture
from parashot.classify.predictions import Prediction
from parashot.plain import printable
from parashot.templates import render

_SIDE = 160
"""Pixels of a thumbnail's longer side."""

_BARS = 4
"""Classes shown for each picture."""


def sheet(predictions: Sequence[Prediction], shots: Mapping[str, Sequence[Path]], weights: str) -> str:
    """Render the sheet, which fetches nothing. `weights` names the network."""
    ranked = [(each.path, each.ranked(list(shots))[:_BARS]) for each in predictions]
    return render(
        "classify/sheet.html",
        pictures=ranked,
        shots=shots,
        weights=weights,
        printable=printable,
        thumbnail=_thumbnail,
    )


def _thumbnail(path: Path) -> str:
    """Return a small JPEG of a picture as a data URL."""
    image = Image.fromarray(read_picture(path))
    image.thumbnail((_SIDE, _SIDE))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=85)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"
