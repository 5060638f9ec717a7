"""The claims of 2020 about loader workers, judged with its own way of loading, and advice on loading."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from parashot.questions.advice import MORE_BLOCKS, Advice, Choice
from parashot.questions.claim import Finding, UntestableError, by_side, claim, needed, settled
from parashot.questions.loader.rows import batch_seconds
from parashot.questions.statistics import Rounds, by_round, paired_ratio, repeated_interval, together
from parashot.questions.text import counted, listed, percent, size, times
from parashot.questions.ways.records import PLAIN_LOADER, Loading
from parashot.questions.ways.rows import step_seconds_by_way

if TYPE_CHECKING:
    from parashot.questions.study import Study

BACKEND = "jpeg"

ABOUT, FEW_OF_MANY, FAR_MORE = (0.75, 1.25), 0.25, 1.75
"""Workers per hardware thread that count as "about as many", "a few" and "far more" (in 2020 50, 2 and 70 of
40)."""


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
    band = f"{low:g} to {high:g} workers"
    if not near:
        raise UntestableError(f"loader.bench.workers has none of {band}")
    ranking, confidence = study.rank(seconds), together(study.confidence, len(seconds) - 1)
    best, fastest = ranking.best, {*ranking.contenders}
    measured = f"best at {counted(best, 'worker')} of {counted(threads, 'thread')}"
    if best and 0 in seconds:
        measured += f": {times(paired_ratio(seconds[0], seconds[best], confidence))} over none"
    if len(fastest) > 1:
        measured += f"; statistically tied with it: {listed(sorted(fastest - {best}))}"
    if fastest <= near:
        return Finding(measured, "holds", f"all that may be the fastest lie in {band}")
    if not fastest & near:
        return Finding(measured, "does not hold", f"none that may be the fastest lies in {band}")
    return Finding(measured, "undecided", f"settings inside and outside of {band} are tied")


@claim("loader-few", "A few workers are slower than none.", "2 workers: 0.54×")
def few(study: Study) -> Finding:
    """Holds if the study's 2 workers (or the fewest measured), of many threads, are slower than none."""
    seconds, threads = _seconds(study), _threads(study)
    fewest = 2 if 2 in seconds else min(each for each in seconds if each)
    if fewest > FEW_OF_MANY * threads:
        reason = f"{counted(fewest, 'worker')} of {counted(threads, 'thread')} are not a few of many"
        raise UntestableError(f"{reason}: it takes {round(fewest / FEW_OF_MANY)} threads")
    return _over_none(study, seconds, fewest)


@claim(
    "loader-many", "Far more workers than threads are slower than none.", "70 workers of 40 threads: 0.35×"
)
def many(study: Study) -> Finding:
    """Holds if the largest number of workers, far above the threads, is slower than none."""
    seconds, threads = _seconds(study), _threads(study)
    most = max(seconds)
    if most < FAR_MORE * threads:
        raise UntestableError(f"loader.bench.workers has nothing from {FAR_MORE * threads:g} on")
    return _over_none(study, seconds, most)


@claim("loader-memory", "Memory grows with the workers.")
def memory(study: Study) -> Finding:
    """Holds if memory rises with the number of workers: the mean slope of the rounds is above 0."""
    workers, blocks = list(_seconds(study)), needed(study, "loader", study.results.loader).blocks
    jpeg = [each for each in blocks if each.backend == BACKEND]
    taken = by_round((each.workers, each.round, each.memory_bytes) for each in jpeg)
    rounds = [[*taken[each].values()] for each in workers]
    slopes = np.polyfit(workers, rounds, 1)[0]  # of each round, by least squares
    slope = repeated_interval(slopes, study.confidence)
    measured = f"{size(slope.value)} per worker ({size(slope.low)} to {size(slope.high)})"
    return by_side(measured, slope, "above", "the slope", 0, "0")


ddp_workers_zero = settled(
    "ddp-workers-zero",
    "Under DDP, num_workers must be 0, because data are pickled twice.",
    "does not hold",
    "tests/data/test_loaders.py: ranks with workers of their own read what they read without",
    "an error that was seen",
)


def _over_none(study: Study, seconds: Mapping[int, Rounds], workers: int) -> Finding:
    """Judge whether so many workers are slower than none. Raises `UntestableError`."""
    if 0 not in seconds:
        raise UntestableError("loader.bench.workers needs 0")
    speedup = paired_ratio(seconds[0], seconds[workers], study.confidence)
    measured = f"{counted(workers, 'worker')} of {counted(_threads(study), 'thread')}: {times(speedup)}"
    return by_side(measured, speedup, "below", "the speedup over no workers")


def _seconds(study: Study) -> dict[int, Rounds]:
    """Seconds per batch by workers and round, of at least two settings."""
    seconds = batch_seconds(needed(study, "loader", study.results.loader).blocks, BACKEND)
    if len(seconds) < 2:
        raise UntestableError(f"loader.bench needs two numbers of workers with the backend {BACKEND}")
    return seconds


def _threads(study: Study) -> int:
    return needed(study, "hardware", study.results.hardware).threads


# --- advice ---------------------------------------------------------------------------------------------


def choose_loading(study: Study) -> Choice[Loading]:
    """The way of loading with which a training step is fastest; of those that are as good, the simplest.

    Fewer workers are simpler; with as many, decoding on request, then an array, then the device's own memory.
    Images that are augmented cannot be decoded on request.
    """
    timed, augmented = _step_seconds(study), study.params.augment.active
    seconds = {each: timed[each] for each in timed if each.backend != BACKEND or not augmented}
    if not seconds:
        raise UntestableError("of augmented images no way of loading was timed in training; run `dvc repro`")
    simplest = sorted(seconds, key=lambda each: (each.workers, each.backend))
    return Choice.of(study.rank(seconds), PLAIN_LOADER, simplest)


LOADING = {
    "jpeg": "decode JPEGs",
    "packed": "read packed images",
    "resident": "hold the images on the device",
}
"""What each backend does, in words."""


def advise_loader(study: Study) -> Advice:
    """Advise on backend and workers."""
    choice = choose_loading(study)
    taken, rows = choice.choice, {row.way.loading: row for row in study.loading}
    row, plain = rows[taken], rows.get(PLAIN_LOADER)
    trained = f"a step by {row.way.strategy} × {row.way.replicas}"
    buys, waits = choice.gains_nothing, f"{trained} waits {percent(row.waiting.value)} of its time for data"
    if not plain:
        buys = f"nothing to compare it with: {PLAIN_LOADER} was not timed"
    elif taken != PLAIN_LOADER:
        gain = choice.gain(PLAIN_LOADER, _step_seconds(study), study.confidence)
        buys = f"{times(gain)} as fast as {PLAIN_LOADER}"
        waits += f", with {PLAIN_LOADER} {percent(plain.waiting.value)}"
    return Advice(
        topic="loader",
        choice=str(taken),
        phrase=str(taken).replace(taken.backend, LOADING[taken.backend]),
        buys=buys,
        sure=f"{choice.how_sure('way of loading')}; {waits}",
        decided=choice.decided,
        settings={"loader.backend": taken.backend, "loader.workers": taken.workers},
        changes="; ".join(filter(None, (choice.open_until(MORE_BLOCKS), _if_decoding(study, taken)))),
    )


def _step_seconds(study: Study) -> dict[Loading, Rounds]:
    """Seconds of a training step with each way of loading. Raises `UntestableError`."""
    loader = needed(study, "loader", study.results.loader)
    seconds = step_seconds_by_way(loader.training)
    if not seconds:
        raise UntestableError("no way of loading was timed in training; run `dvc repro`")
    return {way.loading: seconds[way.way] for way in loader.ways}


def _if_decoding(study: Study, taken: Loading) -> str:
    """What to do where images have to be decoded in every step; empty where that is advised anyway."""
    seconds = _step_seconds(study)
    decoding = {each: seconds[each] for each in seconds if each.backend == BACKEND}
    if not decoding or taken.backend == BACKEND or study.params.augment.active:
        return ""
    best = Choice.of(study.rank(decoding), PLAIN_LOADER, sorted(decoding)).choice
    slower = paired_ratio(seconds[best], seconds[taken], together(study.confidence, len(seconds) - 1))
    return f"images that must be decoded for every step: {best}, and a step takes {times(slower)} as long"
