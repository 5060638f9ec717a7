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
from parashot.report.markup import Markup, document, element
from parashot.report.style import style_sheet

_SIDE = 160
"""Pixels of a thumbnail's longer side."""

_BARS = 4
"""Classes shown for each picture."""

_RULES = """
.sheet{display:grid;grid-template-columns:repeat(auto-fill,minmax(190px,1fr));gap:18px;margin:18px 0}
.sheet figure{border:1px solid var(--line);border-radius:10px;padding:12px;overflow-wrap:anywhere}
.sheet img{display:block;max-width:100%;height:130px;object-fit:contain;margin:0 auto 8px}
.sheet ol{list-style:none;margin:6px 0 0;padding:0}
.sheet meter{width:100%;display:block}
.shots{display:flex;flex-wrap:wrap;gap:8px}
.shots img{height:80px}
"""


def sheet(verdicts: Sequence[Verdict], shots: Mapping[str, Sequence[Path]], weights: str) -> str:
    """Render the sheet; nothing in it is fetched from anywhere. `weights` says whose verdicts these are."""
    classes = list(shots)
    return document(
        "Pictures by class: parashot",
        style_sheet() + _RULES,
        element(
            "main",
            element("h1", f"{len(verdicts)} pictures, {len(classes)} classes"),
            element(
                "p",
                f"By {printable(weights)}. The score of a class is the relation the network sees between the "
                "picture and that class's examples, from 0 to 1; it compares classes for one picture and is "
                "no probability.",
            ),
            element("h2", "Pictures"),
            element("div", [_picture(each, classes) for each in verdicts], class_="sheet"),
            element("h2", "Examples"),
            [_examples(label, files) for label, files in shots.items()],
        ),
    )


def _picture(verdict: Verdict, classes: Sequence[str]) -> Markup:
    name, ranked = printable(verdict.path.name), verdict.ranked(classes)
    bars = [element("li", f"{printable(label)} {score:.3f}", _bar(score)) for label, score in ranked[:_BARS]]
    best = printable(ranked[0][0])
    return element(
        "figure",
        _thumbnail(verdict.path, f"{name}, taken for {best}"),
        element("strong", best),
        element("figcaption", name),
        element("ol", bars),
    )


def _bar(score: float) -> Markup:
    """A score as a bar, for the eyes alone: its number stands beside it."""
    return element("meter", value=f"{score:.4f}", max=1, aria_hidden="true")


def _examples(label: str, files: Sequence[Path]) -> Markup:
    name = printable(label)
    images = [_thumbnail(each, f"example of {name}") for each in files]
    return element("section", element("h3", name), element("div", images, class_="shots"))


def _thumbnail(path: Path, alt: str) -> Markup:
    image = Image.fromarray(read_picture(path))
    image.thumbnail((_SIDE, _SIDE))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=85)
    source = f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"
    return element("img", src=source, alt=alt)
