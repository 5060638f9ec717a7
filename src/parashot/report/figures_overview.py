"""The one figure: what each choice buys over its base case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import blended_transform_factory

from parashot.questions.batchsz.rows import episode_seconds
from parashot.questions.loader.rows import Rounds, batch_seconds
from parashot.questions.results import StudyResults
from parashot.questions.statistics import paired
from parashot.questions.strategies.rows import step_seconds
from parashot.questions.text import counted, listed, ratio
from parashot.report.canvas import (
    WIDTH,
    Drawing,
    boxed,
    interval_mark,
    new_axes,
    ratio_ticks,
    scattered,
    styled,
)
from parashot.report.palette import LIGHT, SERIES

Summary = Mapping[str, Any]
BELOW = 0.3
"""Dots lie this much below their mark, in rows."""


@dataclass(frozen=True)
class Choice:
    """One line of the figure: a choice, its speedup with interval, the single rounds behind it."""

    group: str
    label: str
    speedup: float
    low: float
    high: float
    rounds: tuple[float, ...]
    chosen: bool


def overview(summary: Summary, results: StudyResults, *, wide: bool) -> Drawing | None:
    """Draw every choice's speedup over its base case; None where nothing was timed. `wide` is for files."""
    choices = [*_strategies(summary, results), *_loader(summary, results), *_batchsz(summary, results)]
    if not choices:
        return None
    said = (f"{choice.label} {ratio(choice.speedup)}×" for choice in choices)
    return Drawing(
        "overview",
        "What each choice buys",
        f"Speedup of each choice over its base case, on a logarithmic axis: {listed(said)}.",
        "Speedup over the base case of each group (1×), logarithmic. Dots are single rounds, marks medians "
        "with their interval; filled is what is advised.",
        _draw(choices, _title(summary) if wide else "", 7.2 if wide else WIDTH),
    )


@styled
def _draw(choices: list[Choice], title: str, width: float) -> Figure:
    groups = list(dict.fromkeys(choice.group for choice in choices))
    figure, axes = new_axes(0.9 + 0.27 * len(choices) + 0.34 * len(groups) + (0.5 if title else 0), width)
    place, ticks = 0.0, []
    for group, colour in zip(groups, SERIES, strict=False):
        _heading(axes, place, group)
        place += 1.05
        for choice in (each for each in choices if each.group == group):
            _line(axes, place, choice, colour)
            ticks.append((place, choice.label))
            place += 1
        place += 0.25
    axes.set_yticks([at for at, _ in ticks], [label for _, label in ticks])
    axes.set_ylim(place - 0.4, -0.8)
    axes.axvline(1, color=LIGHT["muted"], linewidth=1.2, zorder=1)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    _logarithmic(axes, [value for choice in choices for value in (choice.low, choice.high, *choice.rounds)])
    axes.set_xlabel("speedup over the base case (higher is faster)")
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    return figure


def _heading(axes: Axes, place: float, group: str) -> None:
    across = blended_transform_factory(axes.transAxes, axes.transData)
    axes.text(
        0.0, place, f" {group}", transform=across, va="center", fontweight="bold", fontsize=9, bbox=boxed()
    )


def _line(axes: Axes, place: float, choice: Choice, colour: str) -> None:
    scattered(axes, choice.rounds, [place + BELOW] * len(choice.rounds), colour)
    fill = {} if choice.chosen else {"markerfacecolor": LIGHT["paper"]}
    mark = (choice.speedup, place)
    interval_mark(axes, mark, choice.low, choice.high, along="x", colour=colour, **fill)
    across = blended_transform_factory(axes.transAxes, axes.transData)
    weight = "bold" if choice.chosen else "normal"
    axes.text(1.01, place, f"{ratio(choice.speedup)}×", transform=across, va="center", fontweight=weight)


def _logarithmic(axes: Axes, values: list[float]) -> None:
    low, high = min([*values, 0.9]) * 0.88, max([*values, 1.12]) * 1.12
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    ratio_ticks(axes.xaxis, low, high, most=5)


def _title(summary: Summary) -> str:
    kind = "synthetic data" if summary["synthetic"] else f"data: {summary['source']}"
    hardware = summary["hardware"]
    machine = f", {hardware['cpu_model']}, {counted(hardware['threads'], 'thread')}" if hardware else ""
    gpus = f", {listed(hardware['gpus'])}" if hardware and hardware["gpus"] else ""
    run = ", a short run" if summary["short_run"] else ""
    return f"What each choice buys ({kind}{run})\nMeasured on this machine{machine}{gpus}"


def _strategies(summary: Summary, results: StudyResults) -> list[Choice]:
    if results.strategies is None:
        return []
    seconds = step_seconds(results.strategies.blocks)
    return [
        _choice(
            f"Strategy, over {row['base']}",
            f"{name}" + (f", {counted(row['replicas'], 'replica')}" if row["replicas"] > 1 else ""),
            row,
            (seconds[row["base"]], seconds[name]),
            chosen=_chosen(summary, "strategy") == name,
        )
        for name, row in summary["strategies"].items()
        if row["speedup"] is not None
    ]


def _loader(summary: Summary, results: StudyResults) -> list[Choice]:
    if results.loader is None:
        return []
    choices = []
    trained = summary["method"]["loader_backend"]
    for row in summary["loader"]:
        if row["backend"] == trained and row["speedup"] is not None:
            seconds = batch_seconds(results.loader.blocks, trained)
            chosen = _chosen(summary, "loader workers") == str(row["workers"])
            rounds = (seconds[0], seconds[row["workers"]])
            name = counted(row["workers"], "worker") if row["workers"] else "no workers"
            choices.append(_choice(f"Loader ({trained}), over no workers", name, row, rounds, chosen=chosen))
    return choices


def _batchsz(summary: Summary, results: StudyResults) -> list[Choice]:
    if results.batchsz is None:
        return []
    blocks = results.batchsz.blocks
    return [
        _choice(
            f"Batch size under DDP, over {row['baseline']}",
            f"batchsz {row['batchsz']}" + (" (stopped)" if row["status"] == "stopped" else ""),
            row,
            (episode_seconds(blocks, row["baseline"]), episode_seconds(blocks, row["batchsz"])),
            chosen=_chosen(summary, "batch size") == str(row["batchsz"]),
        )
        for row in summary["batchsz"]
        if row["speedup"] is not None
    ]


def _choice(
    group: str, label: str, row: Mapping[str, Any], rounds: tuple[Rounds, Rounds], *, chosen: bool
) -> Choice:
    base, own = paired(*rounds)
    interval = (row["speedup"], row["speedup_low"], row["speedup_high"])
    return Choice(group, label, *interval, tuple((base / own).tolist()), chosen)


def _chosen(summary: Summary, topic: str) -> str:
    return next((each["choice"] for each in summary["advice"] if each["topic"] == topic), "")
