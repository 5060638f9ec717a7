"""Figure of the cost model: efficiency on devices that are not here."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from parashot.questions.study import Study
from parashot.report.canvas import Drawing, new_axes, outside_legend, styled
from parashot.report.palette import LIGHT, looks

LINES = {"weak": "-", "strong": "--"}


def scaling_drawings(study: Study) -> Iterator[Drawing]:
    """Draw the predictions, with what was measured of them."""
    if study.scaling:
        yield _efficiency(study)


@styled
def _efficiency(study: Study) -> Drawing:
    figure, axes = new_axes(4.2)
    links = list(dict.fromkeys(row.link for row in study.scaling))
    for link, look in zip(links, looks(len(links)), strict=True):
        for mode, line in LINES.items():
            rows = [row for row in study.scaling if (row.link, row.mode) == (link, mode)]
            devices, shares = [row.devices for row in rows], [row.efficiency.scaled(100) for row in rows]
            low, high = [each.low for each in shares], [each.high for each in shares]
            axes.fill_between(devices, low, high, color=LIGHT[look.colour], alpha=0.15, linewidth=0)
            axes.plot(
                devices,
                [each.value for each in shares],
                color=LIGHT[look.colour],
                linestyle=line,
                marker=look.marker,
                markersize=4,
                label=f"{link}, {mode}",
            )
    for devices_here, efficiency in _measured(study):
        share = 100 * efficiency
        axes.plot(devices_here, share, "D", color=LIGHT["ink"], markersize=6, label="measured", zorder=5)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(sorted({row.devices for row in study.scaling})))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylim(0, 105)
    axes.set_xlabel("devices")
    axes.set_ylabel("efficiency in %")
    outside_legend(figure, 2)
    return Drawing(
        "scaling",
        "Efficiency on more devices, predicted",
        "Predicted efficiency by number of devices, for each link; the table below has the numbers.",
        "Weak scaling keeps the episodes of each replica, strong scaling those of the whole step, which ends "
        "where a replica has no episode left. Bands come from resampled blocks; the diamond was measured.",
        figure,
    )


def _measured(study: Study) -> list[tuple[int, float]]:
    """Return devices and efficiency of what was measured on more than one device."""
    one = next((row.measured.value for row in study.checked if row.devices == 1), None)
    return [
        (row.devices, one / row.measured.value / row.devices)
        for row in study.checked
        if one and row.devices > 1
    ]
