"""Advice on the strategy to train with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parashot.questions.advice import Advice, Choice
from parashot.questions.claim import UntestableError, needed
from parashot.questions.statistics import tied, tied_with_best
from parashot.questions.strategies.rows import BASE, StrategyRow, step_seconds
from parashot.questions.text import listed, ratio, times

if TYPE_CHECKING:
    from parashot.questions.study import Study

ALONE = {"serial": "one replica", "serial-all-cores": "one replica on all cores"}
"""Names in a sentence of the variants of a single replica."""

SIMPLEST = ("serial", "serial-all-cores", "ddp")
"""Order in which those that tie with the fastest are taken.

One process asks least of a training script; of several, DDP is what PyTorch's own page on DataParallel
recommends (https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html).
"""


def advise_strategy(study: Study) -> Advice:
    """Advise the fastest variant whose accuracy several seeds do not show to be worse than serial's.

    Of those that tie with it, the simplest.
    """
    steps = step_seconds(needed(study, "strategies", study.results.strategies).blocks)
    rows = {name: row for name, row in study.strategies.items() if row.seconds_per_step}
    sound = {name: steps[name] for name, row in rows.items() if not _worse(study, row)}
    if not sound:
        raise UntestableError("no strategy was timed; run `dvc repro`")
    fastest, ratios = tied_with_best(sound, study.resampling)
    simplest = [each for each in SIMPLEST if each in (fastest, *tied(ratios))]
    choice = Choice((*simplest, fastest)[0], fastest, ratios)
    name, row = choice.choice, rows[choice.choice]
    on = f"{name} on {row.replicas} replicas" if row.replicas > 1 else ALONE.get(name, name)
    buys = "nothing was faster" if BASE in rows else f"nothing to compare it with: {BASE} was not timed"
    phrase = f"train with {on}: {buys}"
    if name != BASE and row.speedup:
        tie = f" (a tie with {listed(choice.others)})" if choice.others else ""
        phrase = f"train with {on}, {ratio(row.speedup.value)}× as fast as {BASE}{tie}"
        buys = f"{times(row.speedup)} as fast as {BASE}"
    return Advice(
        topic="strategy",
        choice=name,
        setting="",
        phrase=phrase,
        buys=buys,
        sure=choice.how_sure("strategy", ", and simpler" if simplest else ""),
        decided=not choice.others,
    )


def _worse(study: Study, row: StrategyRow) -> bool:
    """Tell if several seeds show its accuracy to lie below serial's by more than the margin."""
    outcome = study.comparison(row.strategy, BASE)
    if outcome is None or outcome.seeds == 1:
        return False
    return outcome.verdict == "different" and outcome.difference.value < 0
