"""The study's claims about loader workers, judged with its own way of loading: the backend `jpeg`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parashot.questions.claim import (
    Finding,
    UntestableError,
    by_ratio,
    by_side,
    claim,
    needed,
    shown_by_test,
)
from parashot.questions.loader.rows import Rounds, batch_seconds
from parashot.questions.statistics import paired, ratio_interval, slope_interval, tied, tied_with_best
from parashot.questions.text import counted, listed, size, times

if TYPE_CHECKING:
    from parashot.questions.study import Study

BACKEND = "jpeg"
ABOUT = (0.75, 1.25)
"""Workers per hardware thread that count as "about as many": the study's best, 50 of 40, is the upper end."""
FAR_MORE = 1.75
"""Workers per hardware thread that count as "far more": the study's 70 of 40."""


@claim(
    "loader-optimum",
    "Loading is fastest with about as many workers as hardware threads.",
    "best at 50 workers of 40 threads: 1.62×",
)
def optimum(study: Study) -> Finding:
    """Holds if all settings that tie with the fastest have about as many workers as threads."""
    seconds, threads = _seconds(study), _threads(study)
    low, high = (share * threads for share in ABOUT)
    near = {workers for workers in seconds if low <= workers <= high}
    if not near:
        raise UntestableError(
            f"no number of workers from {low:g} to {high:g} was measured; add one to loader.bench.workers"
        )
    best, ratios = tied_with_best(seconds, study.resampling)
    equals = {best, *tied(ratios)}
    measured = f"best at {counted(best, 'worker')} of {counted(threads, 'thread')}"
    if best and 0 in seconds:
        gain = ratio_interval(*paired(seconds[0], seconds[best]), study.resampling)
        measured += f": {times(gain)} over none"
    if others := equals - {best}:
        measured += f"; statistically tied with it: {listed(sorted(others))}"
    band = f"{low:g} to {high:g} workers"
    if equals <= near:
        return Finding(measured, "holds", f"every setting that can be the fastest lies in {band}")
    if not equals & near:
        return Finding(measured, "does not hold", f"no setting that can be the fastest lies in {band}")
    return Finding(measured, "undecided", f"settings inside and outside of {band} are tied")


@claim("loader-few", "A few workers are slower than none.", "2 workers: 0.54×")
def few(study: Study) -> Finding:
    """Holds if the study's 2 workers (or the fewest measured) are slower than none."""
    seconds, threads = _seconds(study), _threads(study)
    positive = [workers for workers in seconds if workers > 0]
    if 0 not in seconds or not positive:
        raise UntestableError(
            "loading without workers and with a few must both be measured; see loader.bench.workers"
        )
    fewest = 2 if 2 in positive else min(positive)
    speedup = ratio_interval(*paired(seconds[0], seconds[fewest]), study.resampling)
    measured = f"{counted(fewest, 'worker')} of {counted(threads, 'thread')}: {times(speedup)}"
    return by_ratio(study, measured, speedup, "below", "the speedup over no workers")


@claim("loader-many", "Far more workers than threads are slower.", "70 workers of 40 threads: 0.35×")
def many(study: Study) -> Finding:
    """Holds if the largest number of workers, far above the threads, is slower than the best other."""
    seconds, threads = _seconds(study), _threads(study)
    most = max(seconds)
    if most < FAR_MORE * threads:
        raise UntestableError(
            f"at most {most} workers were measured; at least {FAR_MORE * threads:g} are far more than threads"
        )
    others = {workers: rounds for workers, rounds in seconds.items() if workers != most}
    best, _ = tied_with_best(others, study.resampling)
    # The best was picked among the others: the interval is widened for as many comparisons.
    picked = study.resampling.simultaneous(len(others))
    speedup = ratio_interval(*paired(others[best], seconds[most]), picked)
    measured = (
        f"{most} workers of {counted(threads, 'thread')}: {times(speedup)} of the best other, {best} workers"
    )
    return by_ratio(study, measured, speedup, "below", "the speedup over the best other setting")


@claim("loader-memory", "Memory grows with the workers.")
def memory(study: Study) -> Finding:
    """Holds if memory rises with the number of workers: the slope over the rounds is above 0."""
    workers = list(_seconds(study))
    rounds: dict[int, dict[int, float]] = {}
    for block in needed(study, "loader", study.results.loader).blocks:
        if block.backend == BACKEND:
            rounds.setdefault(block.round, {})[block.workers] = block.memory_bytes
    whole = [[row[each] for each in workers] for row in rounds.values() if len(row) == len(workers)]
    slope = slope_interval(workers, whole, study.resampling)
    measured = f"{size(slope.value)} per worker ({size(slope.low)} to {size(slope.high)})"
    return by_side(measured, slope, 0, "above", "the interval of the slope", "0")


@claim(
    "ddp-workers-zero",
    "Under DDP, num_workers must be 0, because data are pickled twice.",
    "an error that was seen",
)
def ddp_workers_zero(_: Study) -> Finding:
    """Does not hold: DDP ranks read the same bytes with worker processes of their own as without."""
    what = "what can be pickled reaches a rank's workers as well"
    return shown_by_test("tests/data/test_loaders.py", "does not hold", what)


def _seconds(study: Study) -> dict[int, Rounds]:
    """Seconds per batch by workers and round, of at least two settings."""
    seconds = batch_seconds(needed(study, "loader", study.results.loader).blocks, BACKEND)
    if len(seconds) < 2:
        raise UntestableError(
            f"fewer than two settings of the {BACKEND} backend were measured; see loader.bench"
        )
    return seconds


def _threads(study: Study) -> int:
    return needed(study, "hardware", study.results.hardware).threads
