"""Style of the figures and their two formats: PNG for files, SVG for the page.

Colours are Okabe and Ito's, told apart with every kind of colour vision. A figure is drawn with the light
ones; in the page each becomes the CSS variable of the same name in style.css, so that it follows the reader's
theme.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.style import context
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from parashot.questions.statistics import Interval

LIGHT = {
    "ink": "#1c2126",
    "muted": "#5b646e",
    "line": "#d5dae0",
    "paper": "#fefefe",
    "blue": "#0072b2",
    "vermillion": "#d55e00",
    "green": "#009e73",
    "purple": "#b0568a",
}
SERIES = ("blue", "vermillion", "green", "purple")
"""Colours of data; purple is darkened on white, for contrast."""

WIDTH, HEIGHT = 4.8, 3.3
"""Inches: on a phone a figure is as wide as the screen, and its text must stay legible."""

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "axes.titlesize": 10,
    **dict.fromkeys(("font.size", "axes.labelsize"), 9.3),
    "legend.fontsize": 9,
    "svg.fonttype": "none",
    **dict.fromkeys(("grid.linewidth", "hatch.linewidth"), 0.6),
    **dict.fromkeys(("axes.grid", "axes.axisbelow"), True),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    **dict.fromkeys(("axes.facecolor", "figure.facecolor"), "none"),
    **dict.fromkeys(("text.color", "axes.labelcolor", "hatch.color"), LIGHT["ink"]),
    **dict.fromkeys(("xtick.labelcolor", "ytick.labelcolor"), LIGHT["ink"]),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), LIGHT["muted"]),
    "grid.color": LIGHT["line"],
}


@dataclass(frozen=True)
class Drawing:
    """A figure with its words: `alt` for those who cannot see it, `caption` below it."""

    name: str
    title: str
    alt: str
    caption: str
    figure: Figure


def looks(count: int) -> list[tuple[str, str]]:
    """Colour and marker of `count` series, told apart also without colour; any 20 differ."""
    return [(SERIES[i % 4], "os^Dv"[i % 5]) for i in range(count)]


styled = context(STYLE, after_reset=True)
"""Decorator: draw in the report's style, whatever the user's own matplotlib settings are."""


def new_axes(height: float = HEIGHT, width: float = WIDTH) -> tuple[Figure, Axes]:
    """Make a figure with one pair of axes; sizes in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def measured(
    axes: Axes,
    along: str,
    value: Interval,
    place: float,
    single: Iterable[float],
    beside: float,
    colour: str,
    marker: str = "o",
    **style: Any,
) -> None:
    """Mark a value with its interval along one axis (x or y), and draw the single measurements behind it.

    place, beside: of the mark and of those dots on the other axis.
    """
    dots = list(single)
    x, y, behind = value.value, place, (dots, [beside] * len(dots))
    if along == "y":
        x, y, behind = place, value.value, ([beside] * len(dots), dots)
    error: dict[str, Any] = {f"{along}err": [[value.value - value.low], [value.high - value.value]]}
    look: dict[str, Any] = {"color": LIGHT[colour], "capsize": 3, "elinewidth": 1.6, "capthick": 1.6}
    axes.errorbar(x, y, fmt=marker, markersize=6, zorder=4, **error, **look, **style)
    axes.plot(*behind, color=LIGHT[colour], linestyle="none", marker="o", markersize=3.2, alpha=0.4, zorder=2)


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


def rows_on_y(axes: Axes, places: Iterable[float], labels: Iterable[str], low: float, high: float) -> None:
    """Name rows from top to bottom, between `low` and `high`, without lines across them."""
    axes.set_yticks([*places], [*labels])
    axes.set_ylim(high, low)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


def outside_legend(figure: Figure, columns: int = 4) -> None:
    """Put the legend above the axes, where it hides no data."""
    figure.legend(loc="outside upper right", ncols=columns, columnspacing=1.2, handlelength=1.8)


def png(drawing: Drawing) -> bytes:
    """Render for a file: white ground, 160 dots per inch."""
    return _rendered(drawing, "png", dpi=160, facecolor=LIGHT["paper"])


@styled
def svg(drawing: Drawing) -> Markup:
    """Render for the page: inline, scalable, in the page's colours, its text selectable."""
    mpl.rcParams["svg.hashsalt"] = drawing.name
    text = _rendered(drawing, "svg").decode("utf-8")
    box = re.search(r'viewBox="([^"]+)"', text)
    body = text[text.index(">", text.index("<svg")) + 1 : text.rindex("</svg>")]
    assert box is not None
    element = Markup('<svg viewBox="{}" role="img" aria-label="{}" focusable="false">{}</svg>')
    return element.format(box[1], drawing.alt, Markup(_embedded(body, drawing.name)))


def _rendered(drawing: Drawing, form: str, **options: Any) -> bytes:
    figure, buffer = drawing.figure, io.BytesIO()
    if figure.get_layout_engine() is not None:  # laid out once and for all, which takes long
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
    figure.savefig(buffer, format=form, **options)
    return buffer.getvalue()


def _embedded(body: str, name: str) -> str:
    """Drop what only a file of its own needs, make ids unique within the page, and colours variables."""
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = body.replace("xlink:href", "href")
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = body.replace("url(#", f"url(#{name}-").replace('href="#', f'href="#{name}-')
    for variable, value in LIGHT.items():
        body = body.replace(value, f"var(--{variable})")
    return re.sub(r"\n\s*", "\n", body)
