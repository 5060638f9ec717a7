"""Figures of the strategies: time of a step, accuracy, and whether the accuracy is the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from parashot.questions.results import StudyResults
from parashot.questions.strategies.rows import step_seconds
from parashot.questions.text import accuracy, listed, number, ratio
from parashot.report.canvas import Drawing, boxed, interval_mark, new_axes, outside_legend, scattered, styled
from parashot.report.palette import LIGHT

Row = Mapping[str, Any]
ROW_HEIGHT = 0.5


def strategy_drawings(summary: Mapping[str, Any], results: StudyResults) -> list[Drawing]:
    """Draw the strategies' figures; those without measurements are left out.

    What could not run has its line in the figure of steps; what was switched off has its row in the table.
    """
    rows = list(summary["strategies"].values())
    drawings = []
    if results.strategies and any(row["seconds_per_step"] for row in rows):
        shown = [row for row in rows if not row["reason"].endswith(".enabled is false")]
        drawings.append(_step(shown, step_seconds(results.strategies.blocks)))
    if any(row["val_accuracy"] is not None for row in rows):
        drawings.append(_accuracy(rows, summary["evaluate"], summary["method"]["n_way"]))
    if summary["accuracy"]:
        drawings.append(_difference(summary["accuracy"]))
    return drawings


@styled
def _step(rows: Sequence[Row], seconds: Mapping[str, Mapping[int, float]]) -> Drawing:
    figure, axes = new_axes(1.3 + ROW_HEIGHT * len(rows))
    base = next((row["seconds_per_step"] for row in rows if row["variant"] == row["base"]), None)
    right = 1.04 * max(max(times.values()) for times in seconds.values())
    for place, row in enumerate(rows):
        if row["seconds_per_step"] is None:
            axes.text(
                0.01 * right, place, f"{row['status']}, see the table", va="center", color=LIGHT["muted"]
            )
            continue
        times = list(seconds[row["variant"]].values())
        scattered(axes, times, [place + 0.2] * len(times), "blue")
        mark = (row["seconds_per_step"], place)
        interval_mark(
            axes, mark, row["seconds_per_step_low"], row["seconds_per_step_high"], along="x", colour="blue"
        )
        if row["speedup"] is not None:
            axes.text(right, place, f"{ratio(row['speedup'])}×", va="center", fontweight="bold")
        if base and row["replicas"] > 1:
            ideal = base / row["replicas"]
            axes.plot([ideal] * 2, [place - 0.32, place + 0.32], color=LIGHT["vermillion"], linewidth=1.8)
    axes.plot([], [], color=LIGHT["vermillion"], linewidth=1.8, label="ideal: serial / replicas")
    _rows_axis(axes, [_label(row) for row in rows])
    axes.set_xlim(0, right)
    axes.set_xlabel("seconds per step")
    outside_legend(figure)
    timed = [row for row in rows if row["seconds_per_step"] is not None]
    said = (f"{row['variant']} {number(row['seconds_per_step'])} s" for row in timed)
    return Drawing(
        "strategies_step",
        "Time of a training step",
        f"Seconds per step by strategy: {listed(said)}.",
        "Dots are interleaved blocks, marks their median with its interval, the figure on the right the "
        "speedup over serial: one replica with as many threads as any replica has.",
        figure,
    )


@styled
def _accuracy(rows: Sequence[Row], evaluate: Row | None, n_way: int) -> Drawing:
    bars = [
        (row["variant"], row["val_accuracy"], row["val_accuracy_ci95"] or 0, "blue")
        for row in rows
        if row["val_accuracy"] is not None
    ]
    if evaluate:
        name = f"test, {evaluate['strategy']}"
        bars.append((name, evaluate["test_accuracy"], evaluate["test_accuracy_ci95"], "vermillion"))
    figure, axes = new_axes(1.3 + ROW_HEIGHT * len(bars))
    for place, (_, value, half, colour) in enumerate(bars):
        at = (100 * value, place)
        interval_mark(axes, at, 100 * (value - half), 100 * (value + half), along="x", colour=colour)
        axes.annotate(f"{100 * value:.1f}%", at, (0, 8), textcoords="offset points", ha="center")
    axes.axvline(100 / n_way, color=LIGHT["muted"], linestyle="--", label=f"chance, {100 / n_way:g}%")
    _rows_axis(axes, [bar[0] for bar in bars])
    axes.set_xlim(left=100 * min(1 / n_way, *(bar[1] - bar[2] for bar in bars)) - 3)
    axes.set_xlabel("accuracy in %")
    outside_legend(figure)
    said = (f"{name} {accuracy(value, half)}" for name, value, half, _ in bars)
    return Drawing(
        "accuracy",
        "Accuracy on classes never trained on",
        f"Accuracy with its 95% interval: {listed(said)}; chance is {100 / n_way:g}%.",
        "Mean over episodes with its 95% interval: validation after each training, and test, once, of the "
        "chosen model.",
        figure,
    )


@styled
def _difference(rows: Sequence[Row]) -> Drawing:
    figure, axes = new_axes(1.3 + ROW_HEIGHT * len(rows))
    margin = 100 * rows[0]["margin"]
    axes.axvspan(
        -margin,
        margin,
        color=LIGHT["green"],
        alpha=0.16,
        linewidth=0,
        label=f"the same: within ± {margin:g} points",
    )
    axes.axvline(0, color=LIGHT["muted"], linewidth=1)
    for place, row in enumerate(rows):
        mark = (100 * row["difference"], place)
        low, high = 100 * row["difference_low"], 100 * row["difference_high"]
        interval_mark(axes, mark, low, high, along="x", colour="blue")
        axes.annotate(row["verdict"], mark, (0, 9), textcoords="offset points", ha="center", bbox=boxed())
    _rows_axis(axes, [f"{row['first']} - {row['second']}" for row in rows])
    reach = 1.35 * max(
        margin, *(100 * max(abs(row["difference_low"]), abs(row["difference_high"])) for row in rows)
    )
    axes.set_xlim(-reach, reach)
    axes.set_xlabel("difference in accuracy, percentage points")
    outside_legend(figure)
    said = (f"{row['first']} minus {row['second']} {row['verdict']}" for row in rows)
    return Drawing(
        "accuracy_difference",
        "Is the accuracy the same?",
        f"Paired differences in accuracy: {listed(said)}.",
        "Differences over the same episodes with their interval. An interval inside the band is equivalent, "
        "one outside different; else the data do not decide.",
        figure,
    )


def _rows_axis(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


def _label(row: Row) -> str:
    return (
        f"{row['variant']}\n{row['replicas']} × {row['threads_per_replica']} thr."
        if row["replicas"]
        else row["variant"]
    )
