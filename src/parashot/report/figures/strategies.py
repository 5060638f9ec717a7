"""Figure of the strategies: the time of a step, and where it goes."""

from __future__ import annotations

from parashot.questions.strategies.rows import StrategyRow, step_seconds
from parashot.questions.study import Study
from parashot.questions.text import ratio
from parashot.report.canvas import Drawing, dots, interval_mark, new_axes, outside_legend, styled
from parashot.report.palette import LIGHT

PARTS = (
    ("computing", "green", ""),
    ("computing, messages under way", "green", "////"),
    ("messages alone", "vermillion", ""),
    ("waiting", "muted", ""),
)
"""Parts of a step's time: name, colour and hatch."""


@styled
def draw_strategies(study: Study) -> Drawing | None:
    """Draw the variants that were timed; None where there is none."""
    rows = [(row, row.seconds_per_step) for row in study.strategies.values() if row.seconds_per_step]
    if not rows:
        return None
    blocks = study.results.strategies.blocks if study.results.strategies else ()
    rounds = {name: list(times.values()) for name, times in step_seconds(blocks).items()}
    base = next((seconds.value for row, seconds in rows if row.variant == row.base), None)
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
        interval_mark(axes, seconds, place, "blue")
        times = rounds[row.variant]
        dots(axes, times, [place + 0.36] * len(times), "blue")
        if row.speedup:
            axes.text(right, place, f"{ratio(row.speedup.value)}×", va="center", fontweight="bold")
        if base and row.replicas > 1:
            ideal = [base / row.replicas] * 2
            axes.plot(ideal, [place - 0.35, place + 0.35], color=LIGHT["ink"], linewidth=1.8)
    axes.plot([], [], color=LIGHT["ink"], linewidth=1.8, label="ideal: serial / replicas")
    labels = [f"{row.variant}\n{row.replicas} × {row.threads_per_replica} thr." for row, _ in rows]
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
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
