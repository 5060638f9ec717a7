"""A sheet to look at: every picture with its predicted class, in one HTML file of its own."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2
from PIL import Image

from parashot.classify.pictures import read_picture
from parashot.classify.predictions import Prediction
from parashot.plain import printable

_SIDE = 160
"""Pixels of a thumbnail's longer side."""

_BARS = 4
"""Classes shown for each picture."""


def sheet(predictions: Sequence[Prediction], shots: Mapping[str, Sequence[Path]], weights: str) -> str:
    """Render the sheet, which fetches nothing. `weights` names the network."""
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"printable": printable, "thumbnail": _thumbnail}
    page = environment.from_string(Path(__file__).with_name("sheet.html").read_text(encoding="utf-8"))
    ranked = [(each.path, each.ranked(list(shots))[:_BARS]) for each in predictions]
    return page.render(pictures=ranked, shots=shots, weights=weights)


def _thumbnail(path: Path) -> str:
    """Return a small JPEG of a picture as a data URL."""
    image = Image.fromarray(read_picture(path))
    image.thumbnail((_SIDE, _SIDE))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=85)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"
