"""Figures of the loader: speedup and efficiency with the study's beside them, episodes per second, memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from parashot.questions.loader.records import LoaderBlock
from parashot.questions.loader.rows import batch_seconds
from parashot.questions.results import StudyResults
from parashot.questions.statistics import paired
from parashot.questions.study2020 import HARDWARE_THREADS, TABLE_2
from parashot.questions.text import listed, number, percent, ratio, size
from parashot.report.canvas import (
    Drawing,
    interval_mark,
    new_axes,
    outside_legend,
    ratio_ticks,
    scattered,
    styled,
)
from parashot.report.palette import LIGHT, Look, looks

Row = Mapping[str, Any]
HEIGHT = 3.3
MIB = 2**20
BESIDE = 0.11
"""Dots lie this much beside their mark."""


def loader_drawings(summary: Mapping[str, Any], results: StudyResults) -> list[Drawing]:
    """Draw the loader's figures; none where it was not measured."""
    if not summary["loader"] or results.loader is None or not summary["hardware"]:
        return []
    rows, blocks, threads = summary["loader"], results.loader.blocks, summary["hardware"]["threads"]
    based = [row for row in rows if row["speedup"] is not None]
    drawings = [_rate(rows, blocks, threads), _memory(rows, blocks, threads)]
    return (
        [_speedup(based, blocks, threads), _efficiency(based, blocks, threads), *drawings]
        if based
        else drawings
    )


@styled
def _speedup(rows: Sequence[Row], blocks: Sequence[LoaderBlock], threads: int) -> Drawing:
    figure, axes = new_axes(HEIGHT)
    for backend, look in _backends(rows):
        _curve(axes, _of(rows, backend), "speedup", threads, look=look)
        for workers, ratios in _speedups(blocks, backend).items():
            scattered(axes, [workers / threads + BESIDE] * len(ratios), ratios, look.colour)
    axes.plot(
        [row.workers / HARDWARE_THREADS for row in TABLE_2],
        [row.speedup for row in TABLE_2],
        **_study_style(),
    )
    axes.axhline(1, color=LIGHT["muted"], linewidth=1)
    axes.set_yscale("log")
    ratio_ticks(axes.yaxis, *axes.get_ylim())
    _finish(figure, axes, "speedup over no workers", threads)
    return Drawing(
        "loader_speedup",
        "Speedup of the loader",
        "Speedup of loading over no workers, by workers per hardware thread. "
        f"{_told(rows, 'speedup', lambda each: f'{ratio(each)}×')}",
        "Dots are blocks, marks their median with its interval, the broken line the study's Table 2 (it did "
        "not time loading: 0.4 ms cannot decode 300 images). Above the line at 1×, workers pay.",
        figure,
    )


@styled
def _efficiency(rows: Sequence[Row], blocks: Sequence[LoaderBlock], threads: int) -> Drawing:
    figure, axes = new_axes(HEIGHT)
    for backend, look in _backends(rows):
        _curve(axes, _of(rows, backend), "efficiency", threads, look=look)
        for workers, ratios in _speedups(blocks, backend).items():
            scattered(
                axes,
                [workers / threads + BESIDE] * len(ratios),
                [each / max(workers, 1) for each in ratios],
                look.colour,
            )
    axes.plot(
        [row.workers / HARDWARE_THREADS for row in TABLE_2],
        [row.efficiency for row in TABLE_2],
        **_study_style(),
    )
    axes.axhline(1, color=LIGHT["muted"], linewidth=1)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}%"))
    _finish(figure, axes, "efficiency: speedup / workers", threads)
    return Drawing(
        "loader_efficiency",
        "Efficiency of the workers",
        "Efficiency, speedup over workers, by workers per hardware thread. "
        f"{_told(rows, 'efficiency', percent)}",
        "What each worker adds: at 100%, p workers load p times as fast. The broken line is the study's "
        "Table 2.",
        figure,
    )


@styled
def _rate(rows: Sequence[Row], blocks: Sequence[LoaderBlock], threads: int) -> Drawing:
    figure, axes = new_axes(HEIGHT)
    for backend, look in _backends(rows):
        _curve(axes, _of(rows, backend), "episodes_per_second", threads, look=look)
        own = [block for block in blocks if block.backend == backend]
        rates = [block.batches * block.batchsz / block.seconds for block in own]
        scattered(axes, [block.workers / threads + BESIDE for block in own], rates, look.colour)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    _finish(figure, axes, "episodes per second", threads)
    return Drawing(
        "loader_rate",
        "Episodes per second",
        f"Episodes per second, by workers per hardware thread. {_told(rows, 'episodes_per_second', number)}",
        "What the loader alone delivers, without a training beside it. Dots are blocks, marks medians with "
        "intervals.",
        figure,
    )


@styled
def _memory(rows: Sequence[Row], blocks: Sequence[LoaderBlock], threads: int) -> Drawing:
    figure, axes = new_axes(HEIGHT)
    for backend, look in _backends(rows):
        own = _of(rows, backend)
        x = [row["workers"] / threads for row in own]
        y = [row["memory_bytes"] / MIB for row in own]
        axes.plot(x, y, color=LIGHT[look.colour], marker=look.marker, linewidth=1.4, label=backend, zorder=3)
        mine = [block for block in blocks if block.backend == backend]
        scattered(
            axes,
            [block.workers / threads + BESIDE for block in mine],
            [block.memory_bytes / MIB for block in mine],
            look.colour,
        )
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    _finish(figure, axes, "memory in MiB", threads)
    return Drawing(
        "loader_memory",
        "Memory of the loader",
        f"Memory, by workers per hardware thread. {_told(rows, 'memory_bytes', size)}",
        "Summed PSS of the process tree above the same process without a loader; marks are the largest of "
        "the blocks.",
        figure,
    )


def _curve(axes: Axes, rows: Sequence[Row], key: str, threads: int, *, look: Look) -> None:
    x, y = [row["workers"] / threads for row in rows], [row[key] for row in rows]
    axes.plot(
        x, y, color=LIGHT[look.colour], linewidth=1.4, marker=look.marker, label=rows[0]["backend"], zorder=3
    )
    for at, row in zip(x, rows, strict=True):
        interval_mark(
            axes,
            (at, row[key]),
            row[f"{key}_low"],
            row[f"{key}_high"],
            along="y",
            colour=look.colour,
            marker=look.marker,
        )


def _finish(figure: Figure, axes: Axes, label: str, threads: int) -> None:
    axes.set_ylabel(label)
    axes.set_xlabel(f"workers per hardware thread ({threads} here)")
    axes.set_xlim(left=-0.1)
    outside_legend(figure)


def _study_style() -> dict[str, Any]:
    return {
        "color": LIGHT["muted"],
        "linestyle": "--",
        "marker": "x",
        "markersize": 5,
        "linewidth": 1.2,
        "label": f"the study ({HARDWARE_THREADS} threads)",
    }


def _backends(rows: Sequence[Row]) -> list[tuple[str, Look]]:
    names = sorted({row["backend"] for row in rows})
    return list(zip(names, looks(len(names)), strict=True))


def _of(rows: Sequence[Row], backend: str) -> list[Row]:
    return [row for row in rows if row["backend"] == backend]


def _speedups(blocks: Sequence[LoaderBlock], backend: str) -> dict[int, list[float]]:
    """The speedup of each round."""
    seconds = batch_seconds(blocks, backend)
    ratios = {}
    for workers, own in seconds.items():
        base, mine = paired(seconds[0], own) if 0 in seconds else paired({}, own)
        ratios[workers] = (base / mine).tolist()
    return ratios


def _told(rows: Sequence[Row], key: str, say: Callable[[float], str]) -> str:
    sentences = []
    for backend, _ in _backends(rows):
        said = (f"{say(row[key])} with {row['workers']}" for row in _of(rows, backend))
        sentences.append(f"{backend}: {listed(said)} workers.")
    return " ".join(sentences)
