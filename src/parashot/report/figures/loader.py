"""Figure of the loader: speedup over no workers, with the study's beside it."""

from __future__ import annotations

from itertools import groupby

from parashot.questions.loader.rows import LoaderRow, batch_seconds
from parashot.questions.statistics import paired
from parashot.questions.study import Study
from parashot.questions.study2020 import HARDWARE_THREADS, TABLE_2
from parashot.report.canvas import Drawing, dots, interval_mark, new_axes, outside_legend, ratio_axis, styled
from parashot.report.palette import LIGHT, Look, looks

BESIDE = 0.11
"""Distance of the dots from their mark, in workers per thread."""


@styled
def draw_loader(study: Study) -> Drawing | None:
    """Draw the speedups; None where there is none, or the machine is not known."""
    if not study.hardware or not any(row.speedup for row in study.loader):
        return None
    threads = study.hardware.threads
    figure, axes = new_axes()
    blocks = study.results.loader.blocks if study.results.loader else ()
    for backend, rows, look in _by_backend(study):
        seconds, places = batch_seconds(blocks, backend), [row.workers / threads for row in rows]
        speedups = [row.speedup.value if row.speedup else float("nan") for row in rows]
        axes.plot(
            places, speedups, color=LIGHT[look.colour], marker=look.marker, linewidth=1.4, label=backend
        )
        for place, row in zip(places, rows, strict=True):
            if row.speedup:
                interval_mark(axes, place, row.speedup, look.colour, look.marker)
                base, own = paired(seconds[0], seconds[row.workers])
                dots(axes, [place + BESIDE] * len(own), base / own, look.colour)
    axes.plot(
        [workers / HARDWARE_THREADS for workers in TABLE_2],
        list(TABLE_2.values()),
        color=LIGHT["muted"],
        linestyle="--",
        marker="x",
        markersize=5,
        linewidth=1.2,
        label=f"the study ({HARDWARE_THREADS} threads)",
    )
    axes.axhline(1, color=LIGHT["muted"], linewidth=1)
    axes.set_yscale("log")
    ratio_axis(axes.yaxis, *axes.get_ylim())
    axes.set_ylabel("speedup over no workers")
    axes.set_xlabel(f"workers per hardware thread ({threads} here)")
    axes.set_xlim(left=-0.1)
    outside_legend(figure)
    return Drawing(
        "loader_speedup",
        "Speedup of loading alone",
        "Speedup of loading over no workers, by workers per hardware thread; the numbers are in the table.",
        "Dots are blocks, marks their geometric mean with its interval, the broken line the study's Table 2 "
        "(it did not time loading: 0.4 ms cannot decode 300 images). Above the line at 1×, loading alone is "
        "faster with workers.",
        figure,
    )


def _by_backend(study: Study) -> list[tuple[str, list[LoaderRow], Look]]:
    groups = [(name, list(rows)) for name, rows in groupby(study.loader, lambda row: row.backend)]
    return [(name, rows, look) for (name, rows), look in zip(groups, looks(len(groups)), strict=True)]
