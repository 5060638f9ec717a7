"""Figures of the report: one of each question, and the overview of what each choice buys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator
from matplotlib.transforms import blended_transform_factory

from parashot.questions.accuracy.records import Training
from parashot.questions.batchsz.rows import episode_seconds, reached
from parashot.questions.gain.records import ADVISED, USUAL
from parashot.questions.loader.rows import batch_seconds
from parashot.questions.statistics import Interval, Rounds, paired
from parashot.questions.strategies.rows import BASE, StrategyRow, step_seconds
from parashot.questions.study import Study
from parashot.questions.text import counted, listed, percent, ratio
from parashot.questions.ways.records import PLAIN_LOADER
from parashot.questions.ways.rows import step_seconds_by_way
from parashot.report.canvas import (
    LIGHT,
    SERIES,
    WIDTH,
    Drawing,
    looks,
    measured,
    new_axes,
    outside_legend,
    ratio_axis,
    rows_on_y,
    styled,
)
from parashot.train.records import HistoryRow

PARTS = (
    ("computing", "green", ""),
    ("computing, messages under way", "green", "////"),
    ("messages alone", "vermillion", ""),
    ("waiting", "muted", ""),
)
"""Parts of a step's time: name, colour and hatch."""

HARDWARE_THREADS = 40
TABLE_2 = {2: 0.54, 8: 0.78, 16: 1.0, 20: 1.04, 32: 1.18, 50: 1.62, 60: 0.89, 70: 0.35}
"""Speedup of loading by workers in the study of 2020, from its speedup / efficiency. What it timed is not
loading: without workers 0.00044 s, in which 300 images cannot be decoded."""


@styled
def draw_figures(study: Study) -> dict[str, Drawing]:
    """Draw what was measured, as wide as the page needs it, by name."""
    drawings = (
        overview(study, wide=False),
        _loader(study),
        _strategies(study),
        _batchsz(study),
        _accuracy(study),
    )
    return {drawing.name: drawing for drawing in drawings if drawing}


def _loader(study: Study) -> Drawing | None:
    """Speedup of loading over no workers, with the study's; None where the machine is not known."""
    hardware, results = study.results.hardware, study.results.loader
    found = [(row, row.speedup) for row in study.loader if row.speedup]
    if not hardware or not results or not found:
        return None
    threads = hardware.threads
    figure, axes = new_axes()
    backends = list(dict.fromkeys(row.backend for row, _ in found))
    for backend, (colour, marker) in zip(backends, looks(len(backends)), strict=True):
        seconds = batch_seconds(results.blocks, backend)
        rows = {row.workers: speedup for row, speedup in found if row.backend == backend}
        places, speedups = [each / threads for each in rows], [each.value for each in rows.values()]
        axes.plot(places, speedups, color=LIGHT[colour], marker=marker, linewidth=1.4, label=backend)
        for place, (workers, speedup) in zip(places, rows.items(), strict=True):
            rounds = round_ratios(seconds[0], seconds[workers])
            measured(axes, "y", speedup, place, rounds, place + 0.11, colour, marker)
    axes.plot(
        [each / HARDWARE_THREADS for each in TABLE_2],
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
        "Dots are blocks, marks their geometric mean with its interval, the broken line Table 2 of 2020 "
        "(it did not time loading: 0.4 ms cannot decode 300 images). Above the line at 1×, loading alone is "
        "faster with workers.",
        figure,
    )


def _strategies(study: Study) -> Drawing | None:
    """The time of a step, and where it goes; None where no variant was timed."""
    rows = [(row, row.seconds_per_step) for row in study.strategies.values() if row.seconds_per_step]
    if not rows:
        return None
    blocks = study.results.strategies.blocks if study.results.strategies else ()
    rounds = {name: list(times.values()) for name, times in step_seconds(blocks).items()}
    base = next((seconds.value for row, seconds in rows if row.variant == BASE), None)
    right = 1.04 * max(max(rounds[row.variant]) for row, _ in rows)
    figure, axes = new_axes(1.5 + 0.6 * len(rows))
    for name, colour, hatch in PARTS:
        axes.barh(0, 0, color=LIGHT[colour], alpha=0.6, hatch=hatch, linewidth=0, label=name)
    for place, (row, seconds) in enumerate(rows):
        left = 0.0
        for share, colour, hatch in _shares(row):
            width, fill = share * seconds.value, LIGHT[colour]
            axes.barh(place, width, 0.5, left=left, color=fill, alpha=0.6, hatch=hatch, linewidth=0)
            left += width
        measured(axes, "x", seconds, place, rounds[row.variant], place + 0.36, "blue")
        if row.speedup:
            axes.text(right, place, f"{ratio(row.speedup.value)}×", va="center", fontweight="bold")
        if base and row.replicas > 1:
            ideal = [base / row.replicas] * 2
            axes.plot(ideal, [place - 0.35, place + 0.35], color=LIGHT["ink"], linewidth=1.8)
    axes.plot([], [], color=LIGHT["ink"], linewidth=1.8, label="ideal: serial / replicas")
    labels = [f"{row.variant}\n{row.replicas} × {row.threads_per_replica} thr." for row, _ in rows]
    rows_on_y(axes, range(len(labels)), labels, -0.6, len(labels) - 0.4)
    axes.set_xlim(0, right)
    axes.set_xlabel("seconds per step")
    outside_legend(figure, columns=2)
    return Drawing(
        "strategies_step",
        "Time of a training step",
        "Seconds per step and where they go, by strategy; the tables below have the numbers.",
        "Bars and marks are medians with their interval, dots the interleaved blocks, at the right the "
        "speedup over serial: one replica with as many threads as any replica has. A bar is divided by the "
        "shares that the profiler saw, the mean over steps and processes; it slows steps, and waiting is "
        "also what it costs itself. One without parts was not profiled.",
        figure,
    )


def _shares(row: StrategyRow) -> list[tuple[float, str, str]]:
    """Return share, colour and hatch of each of `PARTS`, or of the whole where nothing was profiled."""
    exposed, hidden, idle = row.communication_exposed, row.communication_hidden, row.idle
    if exposed is None or hidden is None or idle is None:
        return [(1.0, "line", "")]
    shares = (max(0.0, 1 - exposed - hidden - idle), hidden, exposed, idle)
    return [(share, colour, hatch) for share, (_, colour, hatch) in zip(shares, PARTS, strict=True)]


def _batchsz(study: Study) -> Drawing | None:
    """What each batch size reaches in the same time; None where none was trained over seeds."""
    means = {row.batchsz: row.val_accuracy for row in study.sizes}
    if not means or not study.results.batchsz:
        return None
    figure, axes = new_axes()
    accuracies = reached(study.results.batchsz.trainings)
    for size, mean in means.items():
        own = [100 * each for each in accuracies[size].values()]
        measured(axes, "y", mean.scaled(100), size, own, size * 1.06, "blue")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator([*means]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([str(size) for size in means])
    axes.margins(x=0.15, y=0.2)
    _finish_accuracy(study, figure, axes, "episodes per step")
    return Drawing(
        "batchsz",
        "Accuracy in the same time",
        f"Validation accuracy after {study.params.batchsz_study.seconds:g} s of training by batch size; the "
        "table has the numbers.",
        "Dots are trainings, one for each seed; marks their mean with its interval over trainings. Where two "
        "intervals overlap, the paired differences in the table decide.",
        figure,
    )


def _accuracy(study: Study) -> Drawing | None:
    """Accuracy of the trainings over seconds; None where none was validated."""
    trainings = study.results.training.items()
    validated = {name: rows for name, each in trainings if (rows := _validated(each))}
    if not validated:
        return None
    figure, axes = new_axes()
    pretraining = study.results.pretraining
    begun = pretraining.history[-1].seconds if pretraining and pretraining.history else 0.0
    if pretraining and begun:
        _curve(axes, "pretraining", _validated(pretraining), ("muted", "x"), 0.0)
    for (name, rows), look in zip(validated.items(), looks(len(validated)), strict=True):
        _curve(axes, name, rows, look, begun)
    axes.set_xlim(left=0)
    _finish_accuracy(study, figure, axes, "seconds of training")
    said = (f"{name} {percent(rows[-1].val_accuracy or 0)}" for name, rows in validated.items())
    return Drawing(
        "curves_accuracy",
        "Accuracy over time",
        f"Validation accuracy over seconds of training; at the end {listed(said)}.",
        "Validations during training with their 95% intervals; the time of validating is not counted."
        + (" Pretraining: what the embedding alone can tell." if begun else ""),
        figure,
    )


def _validated(training: Training) -> list[HistoryRow]:
    return [row for row in training.history if row.val_accuracy is not None]


def _curve(axes: Axes, name: str, rows: list[HistoryRow], look: tuple[str, str], begun: float) -> None:
    colour, marker = look
    axes.errorbar(
        [begun + row.seconds for row in rows],
        [100 * (row.val_accuracy or 0) for row in rows],
        [100 * (row.val_accuracy_ci95 or 0) for row in rows],
        color=LIGHT[colour],
        marker=marker,
        markersize=5,
        capsize=3,
        linewidth=1.4,
        label=name,
    )


def _finish_accuracy(study: Study, figure: Figure, axes: Axes, x: str) -> None:
    """Draw what guessing among the classes reaches, and name the axes."""
    chance = 100 / study.params.episode.n_way
    axes.axhline(chance, color=LIGHT["muted"], linestyle="--", linewidth=1, label="chance")
    axes.set_xlabel(x)
    axes.set_ylabel("validation accuracy in %")
    outside_legend(figure)


# --- the overview --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mark:
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
    said = ("each choice over its base case", "the base case of each group", "advised")
    heading = _title(study) if wide else ""
    return draw_choices("overview", "What each choice buys", said, list(_choices(study)), heading)


def draw_choices(
    name: str,
    title: str,
    said: tuple[str, str, str],
    choices: Sequence[Mark],
    heading: str = "",
) -> Drawing | None:
    """Draw a row for each choice, under the heading of its group; None where there is no choice.

    said: of what the speedups are, over what, and what is filled, in words. heading: within the figure, which
    is then wider.
    """
    if not choices:
        return None
    of, base, filled = said
    found = listed(f"{' '.join(choice.label.split())} {ratio(choice.speedup.value)}×" for choice in choices)
    return Drawing(
        name,
        title,
        f"Speedup of {of}, on a logarithmic axis: {found}.",
        f"Speedup over {base} (1×), logarithmic. Dots are single rounds, marks the speedup with its "
        f"interval; filled is what is {filled}.",
        _drawn(choices, heading),
    )


def _choices(study: Study) -> Iterator[Mark]:
    """Strategies, loaders, all of the advice and batch sizes, each over its base case."""
    results, advised = study.results, {each.topic: each.choice for each in study.advice}
    steps = step_seconds(results.strategies.blocks) if results.strategies else {}
    for name, row in study.strategies.items():
        if row.speedup:
            group, rounds = f"Strategy, over {BASE}", round_ratios(steps[BASE], steps[name])
            label = name + (f", {counted(row.replicas, 'replica')}" if row.replicas > 1 else "")
            yield Mark(group, label, row.speedup, rounds, name == advised.get("strategy"))
    loading = step_seconds_by_way(results.loader.training) if results.loader else {}
    for way in study.loading:
        if way.speedup and way.way.loading != PLAIN_LOADER:
            rounds = round_ratios(loading[PLAIN_LOADER.name], loading[way.way.way])
            label = str(way.way.loading)
            group = f"Loader, over {PLAIN_LOADER}"
            yield Mark(group, label, way.speedup, rounds, label == advised.get("loader"))
    together = step_seconds_by_way(results.gain.blocks) if results.gain else {}
    for way in study.gain:
        if way.speedup and way.way.way == ADVISED:
            rounds = round_ratios(together[USUAL], together[ADVISED])
            yield Mark("All of the advice, over the default", "as advised", way.speedup, rounds, True)
    blocks = results.batchsz.blocks if results.batchsz else ()
    for size, own in study.batchsz.items():
        if own.speedup:
            label = f"batchsz {size}" + (" (stopped)" if own.status == "stopped" else "")
            rounds = round_ratios(episode_seconds(blocks, own.baseline), episode_seconds(blocks, size))
            group = f"Batch size under DDP, over {own.baseline}"
            yield Mark(group, label, own.speedup, rounds, str(size) == advised.get("batch size"))


def round_ratios(base: Rounds, own: Rounds) -> tuple[float, ...]:
    """Return the speedup of each round that measured both."""
    above, below = paired(base, own)
    return tuple((above / below).tolist())


@styled
def _drawn(choices: Sequence[Mark], heading: str) -> Figure:
    groups = list(dict.fromkeys(choice.group for choice in choices))
    rows = [max(1.0, 0.65 * len(choice.label.splitlines())) for choice in choices]
    height = 0.9 + 0.27 * sum(rows) + 0.34 * len(groups) + (0.5 if heading else 0)
    figure, axes = new_axes(height, 7.2 if heading else WIDTH)
    across = blended_transform_factory(axes.transAxes, axes.transData)
    ground = {"boxstyle": "square,pad=0.1", "facecolor": LIGHT["paper"], "edgecolor": "none", "alpha": 0.8}
    bold: dict[str, Any] = {"fontweight": "bold", "fontsize": 9}
    place, places, labels = 0.0, list[float](), list[str]()
    for group, colour in zip(groups, SERIES, strict=False):
        axes.text(0.0, place, f" {group}", transform=across, va="center", bbox=ground, **bold)
        place += 1.05
        for row, choice in zip(rows, choices, strict=True):
            if choice.group != group:
                continue
            place += (row - 1) / 2
            fill = {} if choice.advised else {"markerfacecolor": LIGHT["paper"]}
            measured(axes, "x", choice.speedup, place, choice.rounds, place + 0.3, colour, **fill)
            weight = "bold" if choice.advised else "normal"
            said = f"{ratio(choice.speedup.value)}×"
            axes.text(1.01, place, said, transform=across, va="center", fontweight=weight)
            places.append(place)
            labels.append(choice.label)
            place += (row + 1) / 2
        place += 0.25
    rows_on_y(axes, places, labels, -0.8, place - 0.4)
    axes.axvline(1, color=LIGHT["muted"], linewidth=1.2, zorder=1)
    values = [
        each for choice in choices for each in (choice.speedup.low, choice.speedup.high, *choice.rounds)
    ]
    low, high = min([*values, 0.9]) * 0.88, max([*values, 1.12]) * 1.12
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    ratio_axis(axes.xaxis, low, high, most=5)
    axes.set_xlabel("speedup over the base case (higher is faster)")
    if heading:
        figure.suptitle(heading, x=0.01, ha="left", fontsize=10)
    return figure


def _title(study: Study) -> str:
    data = "synthetic data" if study.synthetic else f"data: {study.params.data.source}"
    run = ", a short run" if study.short_run else ""
    title = f"What each choice buys ({data}{run})\nMeasured on this machine"
    if machine := study.results.hardware:
        parts = (machine.cpu_model, counted(machine.threads, "thread"), listed(machine.gpus))
        title += "".join(f", {part}" for part in parts if part)
    return title
