"""Figures of the loader: speedup over no workers with the study's beside it, and memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from parashot.questions.loader.rows import LoaderRow, batch_seconds
from parashot.questions.statistics import paired
from parashot.questions.study import Study
from parashot.questions.study2020 import HARDWARE_THREADS, TABLE_2
from parashot.report.canvas import Drawing, dots, interval_mark, new_axes, outside_legend, ratio_axis, styled
from parashot.report.palette import LIGHT, Look, looks

BESIDE = 0.11
"""Distance of the dots from their mark, in workers per thread."""


def loader_drawings(study: Study) -> Iterator[Drawing]:
    """Draw speedup and memory; nothing where the loader or the machine is not known."""
    if study.loader and study.hardware:
        if any(row.speedup for row in study.loader):
            yield _speedup(study, study.hardware.threads)
        yield _memory(study, study.hardware.threads)


@styled
def _speedup(study: Study, threads: int) -> Drawing:
    figure, axes = new_axes()
    blocks = study.results.loader.blocks if study.results.loader else ()
    for backend, rows, look in _by_backend(study):
        seconds = batch_seconds(blocks, backend)
        _line(axes, rows, threads, look, lambda row: row.speedup.value if row.speedup else float("nan"))
        for row in rows:
            if row.speedup:
                interval_mark(axes, row.workers / threads, row.speedup, look.colour, look.marker)
                base, own = paired(seconds[0], seconds[row.workers])
                dots(axes, [row.workers / threads + BESIDE] * len(own), base / own, look.colour)
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
    _finish(figure, axes, "speedup over no workers", threads)
    return Drawing(
        "loader_speedup",
        "Speedup of the loader",
        "Speedup of loading over no workers, by workers per hardware thread; the numbers are in the table.",
        "Dots are blocks, marks their median with its interval, the broken line the study's Table 2 (it did "
        "not time loading: 0.4 ms cannot decode 300 images). Above the line at 1×, workers pay.",
        figure,
    )


@styled
def _memory(study: Study, threads: int) -> Drawing:
    figure, axes = new_axes()
    for _, rows, look in _by_backend(study):
        _line(axes, rows, threads, look, lambda row: row.memory_bytes / 2**20)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    _finish(figure, axes, "memory in MiB", threads)
    return Drawing(
        "loader_memory",
        "Memory of the loader",
        "Memory of the loader, by workers per hardware thread; the table below has the numbers.",
        "Summed PSS of the process tree above the same process without a loader: the largest of the blocks.",
        figure,
    )


def _by_backend(study: Study) -> list[tuple[str, list[LoaderRow], Look]]:
    groups = [(name, list(rows)) for name, rows in groupby(study.loader, lambda row: row.backend)]
    return [(name, rows, look) for (name, rows), look in zip(groups, looks(len(groups)), strict=True)]


def _line(
    axes: Axes, rows: list[LoaderRow], threads: int, look: Look, value: Callable[[LoaderRow], float]
) -> None:
    axes.plot(
        [row.workers / threads for row in rows],
        [value(row) for row in rows],
        color=LIGHT[look.colour],
        marker=look.marker,
        linewidth=1.4,
        label=rows[0].backend,
        zorder=3,
    )


def _finish(figure: Figure, axes: Axes, label: str, threads: int) -> None:
    axes.set_ylabel(label)
    axes.set_xlabel(f"workers per hardware thread ({threads} here)")
    axes.set_xlim(left=-0.1)
    outside_legend(figure)
