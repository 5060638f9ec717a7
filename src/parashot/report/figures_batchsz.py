"""Figures of the batch sizes: time to the same episodes, and what of it is communication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from parashot.questions.batchsz.records import BatchszBlock
from parashot.questions.batchsz.rows import episode_seconds
from parashot.questions.results import StudyResults
from parashot.questions.statistics import paired
from parashot.questions.text import listed, number, percent
from parashot.report.canvas import Drawing, boxed, interval_mark, new_axes, outside_legend, scattered, styled
from parashot.report.palette import LIGHT, looks

Row = Mapping[str, Any]
HEIGHT = 3.3


def batchsz_drawings(summary: Mapping[str, Any], results: StudyResults) -> list[Drawing]:
    """Draw the batch sizes' figures; those without measurements are left out."""
    ran = [row for row in summary["batchsz"] if row["seconds"] is not None]
    if not ran or results.batchsz is None:
        return []
    drawings = [_time(ran, results.batchsz.blocks)]
    validated = [row for row in ran if row["val_accuracy"] is not None]
    if validated:
        drawings.append(_accuracy(validated, summary["method"]["n_way"]))
    shared = [row for row in ran if row["communication_share"] is not None]
    return [*drawings, _communication(shared, results.batchsz.blocks)] if shared else drawings


@styled
def _time(rows: Sequence[Row], blocks: Sequence[BatchszBlock]) -> Drawing:
    figure, axes = new_axes(HEIGHT)
    for place, row in enumerate(rows):
        seconds, projected = row["seconds"], row["projected_seconds"]
        axes.bar(place, seconds, 0.5, color=LIGHT["blue"], alpha=0.75, zorder=3)
        if row["status"] == "stopped":
            axes.bar(
                place,
                projected - seconds,
                0.5,
                seconds,
                facecolor="none",
                edgecolor=LIGHT["ink"],
                hatch="///",
                zorder=3,
            )
        said = f"{number(seconds)} s"
        if row["status"] == "stopped":
            said = f"stopped,\n≈ {number(projected)} s"
        times = [each * row["episodes_budget"] for each in episode_seconds(blocks, row["batchsz"]).values()]
        scattered(axes, [place + 0.34] * len(times), times, "vermillion")
        top = (place, max(seconds, projected, *times))
        axes.annotate(said, top, (0, 5), textcoords="offset points", ha="center", bbox=boxed(), zorder=5)
    limit = next((row["limit_seconds"] for row in rows if row["limit_seconds"]), None)
    if limit:
        axes.axhline(
            limit, color=LIGHT["ink"], linestyle="--", linewidth=1, label="limit: the baseline's time"
        )
        outside_legend(figure)
    axes.set_xticks(range(len(rows)), [str(row["batchsz"]) for row in rows])
    axes.set_xlim(-0.6, len(rows) - 0.4)
    axes.margins(y=0.18)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("episodes per step, over all replicas (batchsz)")
    axes.set_ylabel(f"seconds for {rows[0]['episodes_budget']:,} episodes")
    parts = (
        f"batchsz {row['batchsz']} {row['status']}, {number(row['projected_seconds'])} s" for row in rows
    )
    return Drawing(
        "batchsz_time",
        "Time to the same episodes",
        f"Seconds for the same episodes: {listed(parts)}.",
        "Bars are whole runs, one each; a stopped one is hatched up to its projected time. Dots beside them "
        "are the interleaved blocks behind the speedups, scaled to the same episodes.",
        figure,
    )


@styled
def _accuracy(rows: Sequence[Row], n_way: int) -> Drawing:
    figure, axes = new_axes(HEIGHT)
    for row, look in zip(rows, looks(len(rows)), strict=True):
        at = (row["seconds"], 100 * row["val_accuracy"])
        half, stopped = 100 * (row["val_accuracy_ci95"] or 0), row["status"] == "stopped"
        fill = {"markerfacecolor": LIGHT["paper"]} if stopped else {}
        name = f"batchsz {row['batchsz']}{', stopped' if stopped else ''}"
        interval_mark(
            axes,
            at,
            at[1] - half,
            at[1] + half,
            along="y",
            colour=look.colour,
            marker=look.marker,
            label=name,
            **fill,
        )
    axes.axhline(100 / n_way, color=LIGHT["muted"], linestyle="--", linewidth=1, label="chance")
    axes.set_xlim(0, 1.15 * max(row["seconds"] for row in rows))
    axes.margins(y=0.2)
    axes.set_xlabel(f"seconds of training on {rows[0]['episodes_budget']:,} episodes")
    axes.set_ylabel("validation accuracy in %")
    outside_legend(figure, columns=2)
    said = (
        f"batchsz {row['batchsz']} {percent(row['val_accuracy'])} after {number(row['seconds'])} s and "
        f"{row['episodes']} episodes"
        for row in rows
    )
    return Drawing(
        "batchsz_accuracy",
        "Accuracy for the time",
        f"Validation accuracy against seconds of training: {listed(said)}.",
        "The whole runs, one each, with the 95% interval over validation episodes; hollow is a run that met "
        "the limit. Upper left is better: more accurate, sooner.",
        figure,
    )


@styled
def _communication(rows: Sequence[Row], blocks: Sequence[BatchszBlock]) -> Drawing:
    figure, axes = new_axes(HEIGHT)
    for place, row in enumerate(rows):
        with_it, without = paired(
            episode_seconds(blocks, row["batchsz"]),
            episode_seconds(blocks, row["batchsz"], synchronised=False),
        )
        scattered(axes, [place - 0.12] * len(without), (100 * (1 - without / with_it)).tolist(), "blue")
        at = (place, 100 * row["communication_share"])
        low, high = 100 * row["communication_share_low"], 100 * row["communication_share_high"]
        interval_mark(axes, at, low, high, along="y", colour="blue")
        axes.annotate(_share(row), at, (10, -3), textcoords="offset points")
    axes.axhline(0, color=LIGHT["muted"], linewidth=1)
    axes.set_xticks(range(len(rows)), [str(row["batchsz"]) for row in rows])
    axes.set_xlim(-0.5, len(rows) - 0.3)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("episodes per step, over all replicas (batchsz)")
    axes.set_ylabel("share of communication in %")
    said = (f"batchsz {row['batchsz']} {_share(row)}" for row in rows)
    return Drawing(
        "batchsz_communication",
        "Time spent in communication",
        f"Share of a step's time spent exchanging gradients: {listed(said)}.",
        "1 - (time without the exchange of gradients) / (time with it), from interleaved blocks: the part "
        "that is not hidden behind computing. Below 0 it is too short to be seen.",
        figure,
    )


def _share(row: Row) -> str:
    return percent(max(row["communication_share"], 0))
