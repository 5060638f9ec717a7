"""The study's claims about loader workers, judged with its own way of loading: the backend `jpeg`."""

from __future__ import annotations

from parashot.questions.evidence import Evidence, Finding, UntestableError, judged
from parashot.questions.loader.rows import Rounds, batch_seconds, memory_by_round
from parashot.questions.statistics import paired, ratio_interval, slope_interval, tied, tied_with_best
from parashot.questions.text import counted, listed, size, times

BACKEND = "jpeg"
ABOUT = (0.75, 1.25)
"""Workers per hardware thread that count as "about as many": the study's best, 50 of 40, is the upper end."""
FAR_MORE = 1.75
"""Workers per hardware thread that count as "far more": the study's 70 of 40."""


def loader_optimum(evidence: Evidence) -> Finding:
    """Holds if all settings that cannot be told from the fastest have about as many workers as threads."""
    seconds, threads = _seconds(evidence), _threads(evidence)
    low, high = (share * threads for share in ABOUT)
    near = {workers for workers in seconds if low <= workers <= high}
    if not near:
        raise UntestableError(
            f"no number of workers from {low:g} to {high:g} was measured; add one to loader.bench.workers"
        )
    best, ratios = tied_with_best(seconds, evidence.resampling)
    equals = {best, *tied(ratios)}
    measured = (
        f"best at {counted(best, 'worker')} of {counted(threads, 'thread')}{_gain(evidence, seconds, best)}"
    )
    if others := equals - {best}:
        measured += f"; not to be told from it: {listed(sorted(others))}"
    band = f"{low:g} to {high:g} workers"
    if equals <= near:
        return Finding(measured, "holds", f"every setting that can be the fastest lies in {band}")
    if not equals & near:
        return Finding(measured, "does not hold", f"no setting that can be the fastest lies in {band}")
    return Finding(measured, "undecided", f"settings inside and outside of {band} cannot be told apart")


def loader_few(evidence: Evidence) -> Finding:
    """Holds if the study's 2 workers (or the fewest measured) are slower than none."""
    seconds, threads = _seconds(evidence), _threads(evidence)
    positive = [workers for workers in seconds if workers > 0]
    if 0 not in seconds or not positive:
        raise UntestableError(
            "loading without workers and with a few must both be measured; see loader.bench.workers"
        )
    few = 2 if 2 in positive else min(positive)
    speedup = ratio_interval(*paired(seconds[0], seconds[few]), evidence.resampling)
    measured = f"{counted(few, 'worker')} of {counted(threads, 'thread')}: {times(speedup)}"
    return judged(measured, speedup, "below", "the speedup over no workers", evidence.resampling.confidence)


def loader_many(evidence: Evidence) -> Finding:
    """Holds if the largest number of workers, far above the threads, is slower than the best other."""
    seconds, threads = _seconds(evidence), _threads(evidence)
    many = max(seconds)
    if many < FAR_MORE * threads:
        raise UntestableError(
            f"at most {many} workers were measured; at least {FAR_MORE * threads:g} are far more than threads"
        )
    others = {workers: rounds for workers, rounds in seconds.items() if workers != many}
    best, _ = tied_with_best(others, evidence.resampling)
    # The best was picked among the others: the interval is widened for as many comparisons.
    picked = evidence.resampling.simultaneous(len(others))
    speedup = ratio_interval(*paired(others[best], seconds[many]), picked)
    measured = (
        f"{many} workers of {counted(threads, 'thread')}: {times(speedup)} of the best other, {best} workers"
    )
    return judged(
        measured, speedup, "below", "the speedup over the best other setting", evidence.resampling.confidence
    )


def loader_memory(evidence: Evidence) -> Finding:
    """Holds if memory rises with the number of workers: the slope over the rounds is above 0."""
    _seconds(evidence)
    assert evidence.results.loader is not None
    workers, memory = memory_by_round(evidence.results.loader.blocks, BACKEND)
    slope = slope_interval(workers, memory, evidence.resampling)
    measured = f"{size(slope.value)} per worker ({size(slope.low)} to {size(slope.high)})"
    side = slope.side_of(0)
    if side == "around":
        return Finding(measured, "undecided", "the interval of the slope includes 0")
    return Finding(
        measured, "holds" if side == "above" else "does not hold", f"the interval of the slope lies {side} 0"
    )


def _seconds(evidence: Evidence) -> dict[int, Rounds]:
    """Seconds per batch by workers and round, of at least two settings."""
    if evidence.results.loader is None:
        raise UntestableError(evidence.why_missing("loader"))
    seconds = batch_seconds(evidence.results.loader.blocks, BACKEND)
    if len(seconds) < 2:
        raise UntestableError(
            f"fewer than two settings of the {BACKEND} backend were measured; see loader.bench"
        )
    return seconds


def _threads(evidence: Evidence) -> int:
    if evidence.results.hardware is None:
        raise UntestableError(evidence.why_missing("hardware"))
    return evidence.results.hardware.threads


def _gain(evidence: Evidence, seconds: dict[int, Rounds], best: int) -> str:
    if best == 0 or 0 not in seconds:
        return ""
    return f": {times(ratio_interval(*paired(seconds[0], seconds[best]), evidence.resampling))} over none"
