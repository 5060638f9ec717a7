"""The figure of `leaks`: what the processes of each work held, look after look."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from benchmarks.footprint import QUANTITIES
from benchmarks.leaks import WORKS, Work
from parashot.report.canvas import Drawing, styled
from parashot.report.palette import LIGHT, looks

_SIZE = (10.0, 5.6)
"""Inches."""

_COUNTED = [name for name in QUANTITIES if name != "memory_mb"]


@styled
def draw(tree: Mapping[str, Any]) -> Drawing:
    """Draw a saved result: memory above, what is counted below, a column for each work."""
    figure = Figure(figsize=_SIZE, layout="constrained")
    grid = figure.subplots(2, len(WORKS), sharex="col")
    for column, work in enumerate(WORKS):
        _memory(grid[0][column], work, tree["raw"][work.name])
        _counts(grid[1][column], work, tree["raw"][work.name])
    grid[0][0].set_ylabel("memory (MB)")
    grid[1][0].set_ylabel("number")
    handles, labels = grid[1][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(_COUNTED), columnspacing=1.2)
    counts = tree["settings"]["counts"]
    said = f"{counts['steps']:,} steps, and {counts['restarts']:,} restarts of the loader"
    return Drawing(
        "leaks",
        "What grows with work",
        f"Memory, descriptors, threads, processes and files of each work's processes over {said}.",
        f"What all processes of each work held together, over {said}. Axes begin at 0.",
        figure,
    )


def _memory(axes: Axes, work: Work, raw: Mapping[str, Any]) -> None:
    axes.set_title(work.title)
    axes.plot(raw["at"], raw["memory_mb"], color=LIGHT["blue"])
    axes.set_ylim(0, 1.15 * max(raw["memory_mb"]))


def _counts(axes: Axes, work: Work, raw: Mapping[str, Any]) -> None:
    for look, name in zip(looks(len(_COUNTED)), _COUNTED, strict=True):
        axes.plot(raw["at"], raw[name], look.line, color=LIGHT[look.colour], label=QUANTITIES[name])
    axes.set_ylim(0, 1.1 * max(max(raw[name]) for name in _COUNTED))
    axes.set_xlabel(work.unit)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter("{x:,.0f}")
