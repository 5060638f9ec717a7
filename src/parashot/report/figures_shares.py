"""Where the time of a step goes: computing, messages that are hidden behind it or not, and waiting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from parashot.questions.results import StudyResults
from parashot.questions.strategies.records import StepShares
from parashot.questions.text import counted, listed, percent
from parashot.report.canvas import Drawing, new_axes, outside_legend, styled
from parashot.report.palette import LIGHT

_BAND = 0.8
"""Height of what belongs to one variant, where the distance between two is 1."""

_PARTS = (
    ("computing", "green", ""),
    ("computing, messages under way", "green", "////"),
    ("messages alone", "vermillion", ""),
    ("waiting", "muted", ""),
)


def share_drawings(summary: Mapping[str, Any], results: StudyResults) -> list[Drawing]:
    """Draw the profiled steps of every variant that has some."""
    bench = results.strategies
    if bench is None or not bench.shares:
        return []
    seen: dict[str, list[StepShares]] = {name: [] for name in summary["strategies"]}
    for each in bench.shares:
        seen.setdefault(each.variant, []).append(each)
    return [_shares({name: steps for name, steps in seen.items() if steps})]


@styled
def _shares(seen: Mapping[str, Sequence[StepShares]]) -> Drawing:
    figure, axes = new_axes(1.2 + 0.55 * len(seen))
    for place, steps in enumerate(seen.values()):
        height = _BAND / len(steps)
        for line, step in enumerate(sorted(steps, key=lambda each: (each.rank, each.step))):
            left, y = 0.0, place - _BAND / 2 + (line + 0.5) * height
            for share, (_, colour, hatch) in zip(_split(step), _PARTS, strict=True):
                axes.barh(
                    y,
                    100 * share,
                    0.86 * height,
                    left=left,
                    color=LIGHT[colour],
                    alpha=0.75,
                    hatch=hatch or None,
                    linewidth=0,
                )
                left += 100 * share
    for name, colour, hatch in _PARTS:
        axes.barh(0, 0, color=LIGHT[colour], alpha=0.75, hatch=hatch or None, linewidth=0, label=name)
    axes.set_yticks(range(len(seen)), list(seen))
    axes.set_ylim(len(seen) - 0.45, -0.55)
    axes.set_xlim(0, 100)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("share of a step in %")
    outside_legend(figure, columns=2)
    said = (
        f"{name} {percent(fmean(_split(each)[2] for each in steps))} and "
        f"{percent(fmean(each.idle for each in steps))}"
        for name, steps in seen.items()
    )
    count = max(len(steps) for steps in seen.values())
    return Drawing(
        "strategies_shares",
        "Where the time of a step goes",
        f"Shares of a step by strategy; in messages alone and waiting, on average: {listed(said)}.",
        f"Each thin bar is a profiled step of one process, up to {counted(count, 'bar')} for a strategy. The "
        "profiler slows steps, so these are shares and no times; waiting is also what it costs itself.",
        figure,
    )


def _split(step: StepShares) -> tuple[float, float, float, float]:
    """Computing alone, computing with messages under way, messages alone, waiting."""
    alone = max(0.0, 1 - step.exposed - step.hidden - step.idle)
    return alone, step.hidden, step.exposed, step.idle
