"""The one figure: what each choice buys over its base case."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import blended_transform_factory

from parashot.questions.batchsz.rows import episode_seconds
from parashot.questions.gain.records import ADVISED, USUAL
from parashot.questions.statistics import Interval, Rounds, paired
from parashot.questions.strategies.rows import step_seconds
from parashot.questions.study import Study
from parashot.questions.text import counted, listed, ratio
from parashot.questions.ways.records import PLAIN_LOADER
from parashot.questions.ways.rows import step_seconds_by_way
from parashot.report.canvas import WIDTH, Drawing, boxed, dots, interval_mark, new_axes, ratio_axis, styled
from parashot.report.palette import LIGHT, SERIES

BELOW = 0.3
"""Distance of the dots below their mark, in rows."""


@dataclass(frozen=True)
class Choice:
    """One row of the figure: a choice, its speedup, and the speedup of each round behind it."""

    group: str
    label: str
    speedup: Interval
    rounds: tuple[float, ...]
    advised: bool


def overview(study: Study, *, wide: bool) -> Drawing | None:
    """Draw every choice's speedup over its base case; None where nothing was timed.

    `wide` is for a file of its own, with a title that says what was measured on what.
    """
    choices = [*_strategies(study), *_loader(study), *_together(study), *_batchsz(study)]
    if not choices:
        return None
    said = (f"{choice.label} {ratio(choice.speedup.value)}×" for choice in choices)
    return Drawing(
        "overview",
        "What each choice buys",
        f"Speedup of each choice over its base case, on a logarithmic axis: {listed(said)}.",
        "Speedup over the base case of each group (1×), logarithmic. Dots are single rounds, marks their "
        "geometric mean with its interval; filled is what is advised.",
        draw_choices(choices, _title(study) if wide else "", 7.2 if wide else WIDTH),
    )


def _strategies(study: Study) -> Iterator[Choice]:
    bench, advised = study.results.strategies, _advised(study, "strategy")
    seconds = step_seconds(bench.blocks) if bench else {}
    for name, row in study.strategies.items():
        if row.speedup:
            replicas = f", {counted(row.replicas, 'replica')}" if row.replicas > 1 else ""
            rounds = round_ratios(seconds[row.base], seconds[name])
            yield Choice(f"Strategy, over {row.base}", name + replicas, row.speedup, rounds, name == advised)


def _loader(study: Study) -> Iterator[Choice]:
    bench, advised = study.results.loader, _advised(study, "loader")
    seconds = step_seconds_by_way(bench.training) if bench else {}
    for row in study.loading:
        if row.speedup and row.way.loading != PLAIN_LOADER:
            rounds = round_ratios(seconds[PLAIN_LOADER.name], seconds[row.way.way])
            name = str(row.way.loading)
            yield Choice(f"Loader, over {PLAIN_LOADER}", name, row.speedup, rounds, name == advised)


def _together(study: Study) -> Iterator[Choice]:
    seconds = step_seconds_by_way(study.results.gain.blocks) if study.results.gain else {}
    for row in study.gain:
        if row.speedup and row.way.way == ADVISED:
            rounds = round_ratios(seconds[USUAL], seconds[ADVISED])
            yield Choice("All of the advice, over the default", "as advised", row.speedup, rounds, True)


def _batchsz(study: Study) -> Iterator[Choice]:
    blocks = study.results.batchsz.blocks if study.results.batchsz else ()
    advised = _advised(study, "batch size")
    for size, row in study.batchsz.items():
        if row.speedup:
            name = f"batchsz {size}" + (" (stopped)" if row.status == "stopped" else "")
            rounds = round_ratios(episode_seconds(blocks, row.baseline), episode_seconds(blocks, size))
            group = f"Batch size under DDP, over {row.baseline}"
            yield Choice(group, name, row.speedup, rounds, str(size) == advised)


def _advised(study: Study, topic: str) -> str:
    return next((each.choice for each in study.advice if each.topic == topic), "")


def round_ratios(base: Rounds, own: Rounds) -> tuple[float, ...]:
    """Return the speedup of each round that measured both."""
    above, below = paired(base, own)
    return tuple((above / below).tolist())


@styled
def draw_choices(choices: list[Choice], title: str = "", width: float = WIDTH) -> Figure:
    """Draw a row for each choice, under the heading of its group."""
    groups = list(dict.fromkeys(choice.group for choice in choices))
    figure, axes = new_axes(0.9 + 0.27 * len(choices) + 0.34 * len(groups) + (0.5 if title else 0), width)
    across = blended_transform_factory(axes.transAxes, axes.transData)
    place, ticks = 0.0, []
    for group, colour in zip(groups, SERIES, strict=False):
        heading = axes.text(0.0, place, f" {group}", transform=across, va="center", bbox=boxed())
        heading.set(fontweight="bold", fontsize=9)
        place += 1.05
        for choice in (each for each in choices if each.group == group):
            dots(axes, choice.rounds, [place + BELOW] * len(choice.rounds), colour)
            fill = {} if choice.advised else {"markerfacecolor": LIGHT["paper"]}
            interval_mark(axes, choice.speedup, place, colour, **fill)
            weight = "bold" if choice.advised else "normal"
            said = f"{ratio(choice.speedup.value)}×"
            axes.text(1.01, place, said, transform=across, va="center", fontweight=weight)
            ticks.append((place, choice.label))
            place += 1
        place += 0.25
    axes.set_yticks([at for at, _ in ticks], [label for _, label in ticks])
    axes.set_ylim(place - 0.4, -0.8)
    axes.axvline(1, color=LIGHT["muted"], linewidth=1.2, zorder=1)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    _logarithmic(axes, choices)
    axes.set_xlabel("speedup over the base case (higher is faster)")
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    return figure


def _logarithmic(axes: Axes, choices: list[Choice]) -> None:
    values = [
        each for choice in choices for each in (choice.speedup.low, choice.speedup.high, *choice.rounds)
    ]
    low, high = min([*values, 0.9]) * 0.88, max([*values, 1.12]) * 1.12
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    ratio_axis(axes.xaxis, low, high, most=5)


def _title(study: Study) -> str:
    data = "synthetic data" if study.synthetic else f"data: {study.params.data.source}"
    run = ", a short run" if study.short_run else ""
    title = f"What each choice buys ({data}{run})\nMeasured on this machine"
    if machine := study.hardware:
        parts = (machine.cpu_model, counted(machine.threads, "thread"), listed(machine.gpus))
        title += "".join(f", {part}" for part in parts if part)
    return title
