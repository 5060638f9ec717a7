"""In which numbers to compute a step."""

from __future__ import annotations

from parashot.questions.advised import Advice
from parashot.questions.evidence import Evidence, UntestableError
from parashot.questions.statistics import tied_with_best
from parashot.questions.step.rows import seconds_by_way
from parashot.questions.text import times


def advise_precision(evidence: Evidence) -> Advice:
    """The precision of the fastest way to compute a step; fp32 where bf16 is not shown to be faster."""
    if evidence.results.tune is None:
        raise UntestableError(evidence.why_missing("tune"))
    seconds = seconds_by_way(evidence.results.tune.blocks)
    kinds = {way.precision for way in seconds}
    if not kinds:
        asked = evidence.params.train.precision
        raise UntestableError(f"params ask for {asked}; train.precision=auto has it measured")
    if kinds == {"fp32"}:
        return _advice("fp32", "nothing was faster", "the only one that was measured on this device", True)
    best, ratios = tied_with_best(seconds, evidence.resampling)
    other = min(
        (way for way in ratios if way.precision != best.precision),
        key=lambda way: ratios[way].value,
        default=None,
    )
    if other is None:
        return _advice(best.precision, "nothing was faster", "the only one that was measured", True)
    ratio, decided = ratios[other], ratios[other].side_of(1) != "around"
    if not decided:
        words = f"the fastest way in {best.precision} and that in {other.precision} cannot be told apart"
        return _advice("fp32", "nothing was faster", f"{words}; fp32 is the plainer one", False)
    sure = f"a step's fastest way in {other.precision} takes {times(ratio)} its time"
    return _advice(best.precision, f"{times(ratio)} as fast as {other.precision}", sure, True)


def _advice(choice: str, buys: str, sure: str, decided: bool) -> Advice:
    return Advice("precision", choice, f"train.precision={choice}", "", buys, sure, decided)
