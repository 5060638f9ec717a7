"""How figures are drawn and saved: one style, PNG for files, SVG for the page."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from parashot.report.markup import Markup, element
from parashot.report.palette import LIGHT, themed

P = ParamSpec("P")
R = TypeVar("R")

WIDTH = 4.8
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
    """A figure with what is said about it: `alt` for who cannot see it, `caption` below it."""

    name: str
    title: str
    alt: str
    caption: str
    figure: Figure


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Draw in the report's style, whatever the user's own matplotlib settings are."""

    @wraps(draw)
    def inner(*args: P.args, **kwargs: P.kwargs) -> R:
        with mpl.rc_context():
            mpl.rcdefaults()
            mpl.rcParams.update(STYLE)
            return draw(*args, **kwargs)

    return inner


def new_axes(height: float, width: float = WIDTH) -> tuple[Figure, Axes]:
    """Make a figure with one pair of axes; sizes in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def interval_mark(
    axes: Axes,
    at: tuple[float, float],
    low: float,
    high: float,
    *,
    along: str,
    colour: str,
    marker: str = "o",
    **style: Any,
) -> None:
    """Mark a value with its interval, which runs along the axis `along`; `at` is (x, y)."""
    value = at[0] if along == "x" else at[1]
    reach = [[max(value - low, 0)], [max(high - value, 0)]]
    axes.errorbar(
        at[0],
        at[1],
        xerr=reach if along == "x" else None,
        yerr=reach if along == "y" else None,
        fmt=marker,
        color=LIGHT[colour],
        markersize=6,
        capsize=3,
        elinewidth=1.6,
        capthick=1.6,
        zorder=4,
        **style,
    )


def ratio_ticks(axis: Axis, low: float, high: float, most: int = 7) -> None:
    """Mark a logarithmic axis of ratios at powers of 2, or of 4, 8, … where those are more than `most`."""
    lowest, highest = math.floor(math.log2(low)), math.ceil(math.log2(high))
    step = max(1, -(-(highest - lowest) // most))
    ticks = [2.0**power for power in range(-60, 61, step)] if step > 1 else _dense(highest - lowest)
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}×"))


def _dense(octaves: int) -> list[float]:
    """Powers of 2, with steps between them where the axis spans few."""
    between = (1.0,) if octaves > 2 else (1.0, 1.25, 1.5, 1.75)
    return [part * 2.0**power for power in range(-8, 9) for part in between]


def outside_legend(figure: Figure, columns: int = 4) -> None:
    """Put the legend above the axes, where it hides no data."""
    figure.legend(loc="outside upper right", ncols=columns, columnspacing=1.2, handlelength=1.8)


def boxed() -> dict[str, Any]:
    """A ground for a label that crosses lines."""
    return {"boxstyle": "square,pad=0.1", "facecolor": LIGHT["paper"], "edgecolor": "none", "alpha": 0.8}


def scattered(axes: Axes, x: Sequence[float], y: Sequence[float], colour: str) -> None:
    """Show the single measurements behind an interval."""
    axes.plot(x, y, linestyle="none", marker="o", markersize=3.2, color=LIGHT[colour], alpha=0.4, zorder=2)


def _settle(figure: Figure) -> None:
    """Lay the figure out once and for all: each rendering would otherwise solve the layout again."""
    if figure.get_layout_engine() is not None:
        figure.draw_without_rendering()
        figure.set_layout_engine("none")


def png(drawing: Drawing) -> bytes:
    """Render for a file: white ground, 160 dots per inch."""
    _settle(drawing.figure)
    buffer = io.BytesIO()
    drawing.figure.savefig(
        buffer, format="png", dpi=160, facecolor=LIGHT["paper"], metadata={"Software": None}
    )
    return buffer.getvalue()


@styled
def svg(drawing: Drawing) -> Markup:
    """Render for the page: inline, scalable, in the page's colours, its text selectable."""
    mpl.rcParams["svg.hashsalt"] = drawing.name
    _settle(drawing.figure)
    buffer = io.StringIO()
    drawing.figure.savefig(
        buffer, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
    )
    text = buffer.getvalue()
    box = re.search(r'viewBox="([^"]+)"', text)
    body = text[text.index(">", text.index("<svg")) + 1 : text.rindex("</svg>")]
    assert box is not None
    return element(
        "svg",
        Markup(_embedded(body, drawing.name)),
        viewBox=box[1],
        role="img",
        aria_label=drawing.alt,
        focusable="false",
    )


def _embedded(body: str, name: str) -> str:
    """Drop what only a file of its own needs, and make ids unique within the page."""
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = body.replace("xlink:href", "href")
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = body.replace("url(#", f"url(#{name}-").replace('href="#', f'href="#{name}-')
    return themed(re.sub(r"\n\s*", "\n", body))
