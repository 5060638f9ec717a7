"""The figure of the model of cost: efficiency on devices that are not here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from parashot.questions.text import counted, listed, percent
from parashot.report.canvas import Drawing, new_axes, outside_legend, styled
from parashot.report.palette import LIGHT, looks

Row = Mapping[str, Any]
HEIGHT = 4.2
LINES = {"weak": "-", "strong": "--"}


def scaling_drawings(summary: Mapping[str, Any]) -> list[Drawing]:
    """Draw the predictions; nothing where there are none."""
    rows = summary["scaling"]["rows"]
    return [_efficiency(rows, summary["scaling"]["checked"])] if rows else []


@styled
def _efficiency(rows: Sequence[Row], checked: Sequence[Row]) -> Drawing:
    figure, axes = new_axes(HEIGHT)
    links = list(dict.fromkeys(row["link"] for row in rows))
    for link, look in zip(links, looks(len(links)), strict=True):
        colour = LIGHT[look.colour]
        for mode, line in LINES.items():
            mine = [row for row in rows if row["link"] == link and row["mode"] == mode]
            devices = [row["devices"] for row in mine]
            low, high = ([100 * row[f"efficiency_{end}"] for row in mine] for end in ("low", "high"))
            axes.fill_between(devices, low, high, color=colour, alpha=0.15, linewidth=0)
            axes.plot(
                devices,
                [100 * row["efficiency"] for row in mine],
                color=colour,
                linestyle=line,
                marker=look.marker,
                markersize=4,
                label=f"{link}, {mode}",
            )
    for place, efficiency in _measured(checked):
        axes.plot(place, 100 * efficiency, "D", color=LIGHT["ink"], markersize=6, label="measured", zorder=5)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(sorted({row["devices"] for row in rows})))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylim(0, 105)
    axes.set_xlabel("devices")
    axes.set_ylabel("efficiency in %")
    outside_legend(figure, 2)
    most = max(row["devices"] for row in rows)
    said = (
        f"{row['link']}, {row['mode']}, {percent(row['efficiency'])}"
        for row in rows
        if row["devices"] == most
    )
    return Drawing(
        "scaling",
        "Efficiency on more devices, predicted",
        f"Predicted efficiency on {counted(most, 'device')}: {listed(said)}.",
        "Weak scaling keeps the episodes of each replica, strong scaling those of the whole step, which ends "
        "where a replica has no episode left. Bands come from resampled blocks; the diamond was measured.",
        figure,
    )


def _measured(checked: Sequence[Row]) -> list[tuple[int, float]]:
    """Devices and efficiency of what was measured on more than one device."""
    one = next((row["measured"] for row in checked if row["devices"] == 1), None)
    return [
        (row["devices"], one / row["measured"] / row["devices"])
        for row in checked
        if one and row["devices"] > 1
    ]
