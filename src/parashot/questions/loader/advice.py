"""How to read the images: how many workers, and from what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parashot.questions.advice import Advice, as_fast_as, how_sure
from parashot.questions.claim import UntestableError, needed
from parashot.questions.loader.rows import batch_seconds
from parashot.questions.statistics import Interval, tied, tied_with_best
from parashot.questions.text import counted, listed, number, times

if TYPE_CHECKING:
    from parashot.questions.study import Study


def advise_workers(study: Study) -> Advice:
    """Advise the fewest workers that tie with the fastest setting of the training's backend."""
    backend = study.params.loader.backend
    seconds = batch_seconds(needed(study, "loader", study.results.loader).blocks, backend)
    if not seconds:
        raise UntestableError(f"the backend {backend} was not measured; add it to loader.bench.backends")
    best, ratios = tied_with_best(seconds, study.resampling)
    equals = sorted([best, *tied(ratios)])
    workers, *others = equals
    row = next(row for row in study.loader if (row.backend, row.workers) == (backend, workers))
    gain = "no workers are as fast as any number of them"
    if not workers and ratios and not others:
        following, behind = min(ratios.items(), key=lambda each: each[1].value)
        gain = f"{times(behind)} the episodes per second of {counted(following, 'worker')}, the next best"
    if workers and row.speedup:
        gain = f"{times(row.speedup)} the episodes per second of none"
    sure = f"faster than every other number of workers with {backend}"
    if len(seconds) == 1:
        sure = f"the only number of workers that was measured with {backend}"
    if others:
        sure = f"{as_fast_as(others)}; the fewest take the least memory"
    return Advice(
        topic="loader workers",
        choice=str(workers),
        setting=f"loader.workers={workers}",
        phrase=f"read with {counted(workers, 'worker') if workers else 'no workers'} ({backend})",
        buys=gain,
        sure=sure + _supply(study, row.episodes_per_second.value),
        decided=not others,
    )


def advise_backend(study: Study) -> Advice:
    """Advise the fastest backend, each with its best workers; the training's own where it is as fast."""
    blocks = needed(study, "loader", study.results.loader).blocks
    settings = {
        (row.backend, row.workers): batch_seconds(blocks, row.backend)[row.workers] for row in study.loader
    }
    if not settings:
        raise UntestableError("no loader setting was measured; run `dvc repro`")
    (best, _), ratios = tied_with_best(settings, study.resampling)
    behind: dict[str, Interval] = {}  # of each other backend's best setting
    for (backend, _), ratio in sorted(ratios.items(), key=lambda each: each[1].value):
        if backend != best:
            behind.setdefault(backend, ratio)
    equals = [best, *tied(behind)]
    own = study.params.loader.backend
    choice = own if own in equals else best
    others = [each for each in equals if each != choice]
    gains = [f"{times(ratio)} as fast as {name}" for name, ratio in behind.items() if choice == best]
    sure = as_fast_as(others) if others else how_sure(behind, "backend")
    return Advice(
        topic="loader backend",
        choice=choice,
        setting=f"loader.backend={choice}",
        phrase="",
        buys=listed(gains) or "nothing was faster",
        sure=f"{sure}; each backend with its best number of workers",
        decided=not others,
    )


def _supply(study: Study, supply: float) -> str:
    """Say how the loader's episodes per second stand to what the fastest strategy consumes."""
    rates = [row.episodes_per_second.value for row in study.strategies.values() if row.episodes_per_second]
    if not rates:
        return ""
    ratio = supply / max(rates)
    verb = "about" if ratio > 1 else "only"
    return f"; it delivers {verb} {number(ratio)} times what the fastest strategy consumes"
