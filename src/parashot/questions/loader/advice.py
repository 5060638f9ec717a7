"""How to read the images: how many workers, and from what."""

from __future__ import annotations

from parashot.questions.advised import Advice, as_fast_as, how_sure
from parashot.questions.evidence import Evidence, UntestableError
from parashot.questions.loader.rows import batch_seconds
from parashot.questions.statistics import Interval, tied, tied_with_best
from parashot.questions.text import counted, listed, number, times


def advise_workers(evidence: Evidence) -> Advice:
    """The fewest workers that cannot be told from the fastest setting of the training's backend."""
    backend = evidence.params.loader.backend
    if evidence.results.loader is None:
        raise UntestableError(evidence.why_missing("loader"))
    seconds = batch_seconds(evidence.results.loader.blocks, backend)
    if not seconds:
        raise UntestableError(f"the backend {backend} was not measured; add it to loader.bench.backends")
    best, ratios = tied_with_best(seconds, evidence.resampling)
    equals = [best, *tied(ratios)]
    workers = min(equals)
    row = next(row for row in evidence.loader if (row.backend, row.workers) == (backend, workers))
    gain = "no workers are as fast as any number of them"
    if not workers and ratios and len(equals) == 1:
        following, behind = min(ratios.items(), key=lambda each: each[1].value)
        gain = f"{times(behind)} the episodes per second of {counted(following, 'worker')}, the next best"
    if workers and row.speedup:
        gain = f"{times(row.speedup)} the episodes per second of none"
    others = [str(each) for each in sorted(equals) if each != workers]
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
        sure=sure + _supply(evidence, row.episodes_per_second),
        decided=not others,
    )


def advise_backend(evidence: Evidence) -> Advice:
    """The fastest backend, each with its best number of workers; the training's own where that is as fast."""
    if evidence.results.loader is None:
        raise UntestableError(evidence.why_missing("loader"))
    settings = {
        (row.backend, row.workers): batch_seconds(evidence.results.loader.blocks, row.backend)[row.workers]
        for row in evidence.loader
    }
    if not settings:
        raise UntestableError("no loader setting was measured; run `dvc repro`")
    (best, _), ratios = tied_with_best(settings, evidence.resampling)
    behind: dict[str, Interval] = {}  # of each other backend's best setting
    for (backend, _), ratio in ratios.items():
        if backend != best and (backend not in behind or ratio.value < behind[backend].value):
            behind[backend] = ratio
    equals = [best, *tied(behind)]
    own = evidence.params.loader.backend
    choice = own if own in equals else best
    gains = [f"{times(ratio)} as fast as {name}" for name, ratio in behind.items() if choice == best]
    others = [each for each in equals if each != choice]
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


def _supply(evidence: Evidence, supply: Interval) -> str:
    """How what the loader delivers stands to what the fastest strategy consumes."""
    rates = [row.episodes_per_second.value for row in evidence.strategies.values() if row.episodes_per_second]
    if not rates:
        return ""
    ratio = supply.value / max(rates)
    verb = "about" if ratio > 1 else "only"
    return f"; it delivers {verb} {number(ratio)} times what the fastest strategy consumes"
