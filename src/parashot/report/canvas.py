"""Style of the figures and their two formats: PNG for files, SVG for the page."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from parashot.questions.statistics import Interval
from parashot.report.palette import LIGHT

WIDTH, HEIGHT = 4.8, 3.3
"""Inches: on a phone a figure is as wide as the screen, and its text must stay legible."""

STYLE: Mapping[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.3,
    "axes.titlesize": 10,
    "axes.labelsize": 9.3,
    "text.color": LIGHT["ink"],
    "axes.edgecolor": LIGHT["muted"],
    "axes.labelcolor": LIGHT["ink"],
    "xtick.color": LIGHT["muted"],
    "ytick.color": LIGHT["muted"],
    "xtick.labelcolor": LIGHT["ink"],
    "ytick.labelcolor": LIGHT["ink"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LIGHT["line"],
    "grid.linewidth": 0.6,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "legend.frameon": False,
    "legend.fontsize": 9,
    "hatch.color": LIGHT["ink"],
    "hatch.linewidth": 0.6,
    "svg.fonttype": "none",
}


@dataclass(frozen=True)
class Drawing:
    """A figure with its words: `alt` for those who cannot see it, `caption` below it."""

    name: str
    title: str
    alt: str
    caption: str
    figure: Figure


@contextmanager
def _style() -> Iterator[None]:
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


styled = _style()
"""Decorator: draw in the report's style, whatever the user's own matplotlib settings are."""


def new_axes(height: float = HEIGHT, width: float = WIDTH) -> tuple[Figure, Axes]:
    """Make a figure with one pair of axes; sizes in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def interval_mark(
    axes: Axes, x: float | Interval, y: float | Interval, colour: str, marker: str = "o", **style: Any
) -> None:
    """Mark a value and its interval, which is the one of `x` and `y` that is an `Interval`."""
    errors: dict[str, Any] = {
        f"{name}err": [[value.value - value.low], [value.high - value.value]]
        for name, value in (("x", x), ("y", y))
        if isinstance(value, Interval)
    }
    left, up = (each.value if isinstance(each, Interval) else each for each in (x, y))
    look: dict[str, Any] = {"color": LIGHT[colour], "markersize": 6, "zorder": 4}
    axes.errorbar(left, up, fmt=marker, capsize=3, elinewidth=1.6, capthick=1.6, **errors, **look, **style)


def dots(axes: Axes, x: Iterable[float], y: Iterable[float], colour: str) -> None:
    """Draw the single measurements behind an interval."""
    look: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 3.2, "alpha": 0.4, "zorder": 2}
    axes.plot(list(x), list(y), color=LIGHT[colour], **look)


def ratio_axis(axis: Axis, low: float, high: float, most: int = 7) -> None:
    """Mark a logarithmic axis of ratios from `low` to `high` at powers of 2.

    More than `most` of them become powers of 4, 8, …; where there are few, steps between them are marked too.
    """
    octaves = math.ceil(math.log2(high)) - math.floor(math.log2(low))
    step = max(1, -(-octaves // most))
    span = math.log2(high / low)
    between = (1.0, 1.25, 1.5, 1.75) if span <= 1 else (1.0, 1.5) if span <= 2.5 else (1.0,)
    axis.set_major_locator(
        FixedLocator([part * 2.0**power for power in range(-60, 61, step) for part in between])
    )
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}×"))


def chance_line(axes: Axes, n_way: int) -> None:
    """Draw the accuracy in percent that guessing among `n_way` classes has."""
    axes.axhline(100 / n_way, color=LIGHT["muted"], linestyle="--", linewidth=1, label="chance")


def outside_legend(figure: Figure, columns: int = 4) -> None:
    """Put the legend above the axes, where it hides no data."""
    figure.legend(loc="outside upper right", ncols=columns, columnspacing=1.2, handlelength=1.8)


def boxed() -> dict[str, Any]:
    """Return the ground of a label that crosses lines."""
    return {"boxstyle": "square,pad=0.1", "facecolor": LIGHT["paper"], "edgecolor": "none", "alpha": 0.8}


def png(drawing: Drawing) -> bytes:
    """Render for a file: white ground, 160 dots per inch."""
    _lay_out(drawing.figure)
    buffer = io.BytesIO()
    drawing.figure.savefig(
        buffer, format="png", dpi=160, facecolor=LIGHT["paper"], metadata={"Software": None}
    )
    return buffer.getvalue()


@styled
def svg(drawing: Drawing) -> Markup:
    """Render for the page: inline, scalable, in the page's colours, its text selectable."""
    mpl.rcParams["svg.hashsalt"] = drawing.name
    _lay_out(drawing.figure)
    buffer = io.StringIO()
    drawing.figure.savefig(
        buffer, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
    )
    text = buffer.getvalue()
    box = re.search(r'viewBox="([^"]+)"', text)
    body = text[text.index(">", text.index("<svg")) + 1 : text.rindex("</svg>")]
    assert box is not None
    element = Markup('<svg viewBox="{}" role="img" aria-label="{}" focusable="false">{}</svg>')
    return element.format(box[1], drawing.alt, Markup(_embedded(body, drawing.name)))


def _lay_out(figure: Figure) -> None:
    """Lay the figure out once and for all: each rendering would otherwise solve the layout again."""
    if figure.get_layout_engine() is not None:
        figure.draw_without_rendering()
        figure.set_layout_engine("none")


def _embedded(body: str, name: str) -> str:
    """Drop what only a file of its own needs, make ids unique within the page, and colours variables."""
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = body.replace("xlink:href", "href")
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = body.replace("url(#", f"url(#{name}-").replace('href="#', f'href="#{name}-')
    for variable, value in LIGHT.items():
        body = body.replace(value, f"var(--{variable})")
    return re.sub(r"\n\s*", "\n", body)
