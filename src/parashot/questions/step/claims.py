"""Claims of the study's companions about how one replica computes a step."""

from __future__ import annotations

from parashot.questions.evidence import Evidence, Finding, UntestableError
from parashot.questions.statistics import Interval
from parashot.questions.strategies.claims import SAME_FUNCTION
from parashot.questions.text import size, times


def accumulation_equals(evidence: Evidence) -> Finding:
    """Holds if the gradients of a batch in two parts are those of the whole, as the network trains."""
    fixed, training = _metrics(evidence, "accumulation_difference_fixed", "accumulation_difference_training")
    measured = (
        "largest difference of the gradients, of two parts against one batch, over the largest gradient: "
        f"{training:.1e} as the network trains, {fixed:.1e} with batch norm's statistics fixed, in float64"
    )
    if fixed > SAME_FUNCTION:
        return Finding(measured, "does not hold", "the sums differ even where every episode counts by itself")
    if training > SAME_FUNCTION:
        return Finding(
            measured,
            "does not hold",
            "batch norm takes its statistics from each part; without that the sums are the same",
        )
    return Finding(measured, "holds", "the same sums, to the last digits of float64")


def checkpointing_trades(evidence: Evidence) -> Finding:
    """Holds if computing blocks again keeps fewer bytes for backward and takes more time."""
    names = ("kept_ratio", "time_ratio", "time_ratio_low", "time_ratio_high", "kept_bytes")
    kept, *ratio, kept_bytes = _metrics(evidence, *(f"recompute_{name}" for name in names))
    slower = Interval(ratio[0], ratio[1], ratio[2])
    measured = f"{kept:.0%} of {size(kept_bytes)} kept for backward, {times(slower)} the time of a step"
    side = slower.side_of(1)
    if kept >= 1:
        return Finding(measured, "does not hold", "no fewer bytes are kept")
    if side == "around":
        return Finding(measured, "undecided", "fewer bytes are kept; the interval of the time includes 1")
    if side == "below":
        return Finding(measured, "does not hold", "it takes less memory and less time, too")
    return Finding(measured, "holds", "bytes are counted, and the interval of the time lies above 1")


def _metrics(evidence: Evidence, *names: str) -> list[float]:
    if evidence.results.strategies is None:
        raise UntestableError(evidence.why_missing("strategies"))
    found = [evidence.results.strategies.metrics.get(name) for name in names]
    if None in found:
        raise UntestableError(
            f"it was not tried: results/strategies/metrics.json has no {names[0]}; no strategy was timed"
        )
    return [float(each) for each in found if each is not None]
