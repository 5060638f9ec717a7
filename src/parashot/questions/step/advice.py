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
        asked = study.params.train.precision
        raise UntestableError(f"params ask for {asked}; train.precision=auto has it measured")
    best, ratios = tied_with_best(seconds, study.resampling)
    others = {way: ratio for way, ratio in ratios.items() if way.precision != best.precision}
    if not others:
        return _advice(best.precision, "nothing was faster", "the only one that was measured", True)
    other = min(others, key=lambda way: others[way].value)
    if others[other].side_of(1) == "around":
        tie = f"the fastest way in {best.precision} and that in {other.precision} are statistically tied"
        return _advice("fp32", "nothing was faster", f"{tie}; fp32 is the plainer one", False)
    slower = times(others[other])
    sure = f"a step's fastest way in {other.precision} takes {slower} its time"
    return _advice(best.precision, f"{slower} as fast as {other.precision}", sure, True)


def _advice(choice: str, buys: str, sure: str, decided: bool) -> Advice:
    return Advice("precision", choice, f"train.precision={choice}", "", buys, sure, decided)
