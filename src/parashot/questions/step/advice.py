"""Advice on the precision of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parashot.questions.advice import Advice
from parashot.questions.claim import UntestableError, needed
from parashot.questions.statistics import tied_with_best
from parashot.questions.step.rows import seconds_by_way
from parashot.questions.text import times

if TYPE_CHECKING:
    from parashot.questions.study import Study


def advise_precision(study: Study) -> Advice:
    """Advise the precision of the fastest way to compute a step; fp32 where bf16 is not shown faster."""
    seconds = seconds_by_way(needed(study, "tune", study.results.tune).blocks)
    if not seconds:
        raise UntestableError(f"train.precision is {study.params.train.precision}; auto has it measured")
    best, ratios = tied_with_best(seconds, study.resampling)
    choice, buys, sure, decided = best.precision, "nothing was faster", "the only one that was measured", True
    others = {way: ratio for way, ratio in ratios.items() if way.precision != best.precision}
    if others:
        other = min(others, key=lambda way: others[way].value)
        if others[other].side_of(1) == "around":
            choice, decided = "fp32", False
            sure = f"the fastest ways in {best.precision} and {other.precision} are tied; fp32 is the plainer"
        else:
            slower = times(others[other])
            buys = f"{slower} as fast as {other.precision}"
            sure = f"a step's fastest way in {other.precision} takes {slower} its time"
    return Advice("precision", choice, f"train.precision={choice}", "", buys, sure, decided)
