"""Advice on loading: number of workers, and backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parashot.questions.advice import Advice, Choice
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
        raise UntestableError(f"loader.bench.backends has no {backend}, the backend of the training")
    best, ratios = tied_with_best(seconds, study.resampling)
    choice = Choice(min([best, *tied(ratios)]), best, ratios)
    workers = choice.choice
    row = next(row for row in study.loader if (row.backend, row.workers) == (backend, workers))
    buys = "no workers are as fast as any number of them"
    if workers and row.speedup:
        buys = f"{times(row.speedup)} the episodes per second of none"
    elif ratios and not choice.others:
        following, behind = choice.next_best
        buys = f"{times(behind)} the episodes per second of {counted(following, 'worker')}, the next best"
    sure = choice.how_sure(f"number of workers with {backend}", "; the fewest take the least memory")
    consumed = [
        each.episodes_per_second.value for each in study.strategies.values() if each.episodes_per_second
    ]
    if consumed:
        supply = number(row.episodes_per_second.value / max(consumed))
        sure += f"; it delivers {supply} times what the fastest strategy consumes"
    return Advice(
        topic="loader workers",
        choice=str(workers),
        setting=f"loader.workers={workers}",
        phrase=f"read with {counted(workers, 'worker') if workers else 'no workers'} ({backend})",
        buys=buys,
        sure=sure,
        decided=not choice.others,
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
    own = study.params.loader.backend
    choice = Choice(own if own in tied(behind) else best, best, behind)
    gains = (f"{times(ratio)} as fast as {name}" for name, ratio in behind.items() if choice.choice == best)
    return Advice(
        topic="loader backend",
        choice=choice.choice,
        setting=f"loader.backend={choice.choice}",
        phrase="",
        buys=listed(gains) or "nothing was faster",
        sure=f"{choice.how_sure('backend')}; each backend with its best number of workers",
        decided=not choice.others,
    )
