"""Which strategy to train with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parashot.questions.advice import Advice, as_fast_as, how_sure
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
    equals = [fastest, *tied(ratios)]
    choice = next((each for each in SIMPLEST if each in equals), fastest)
    others = [name for name in equals if name != choice]
    row = rows[choice]
    phrase = f"train with {choice} on {row.replicas} replicas"
    if row.replicas < 2:
        phrase = f"train with {ALONE.get(choice, choice)}"
    buys = "nothing was faster" if BASE in rows else f"nothing to compare it with: {BASE} was not timed"
    if choice != BASE and row.speedup:
        phrase += f", {ratio(row.speedup.value)}× as fast as {BASE}"
        phrase += f" (a tie with {listed(others)})" if others else ""
        buys = f"{times(row.speedup)} as fast as {BASE}"
    else:
        phrase += f": {buys}"
    simpler = others and choice in SIMPLEST
    return Advice(
        topic="strategy",
        choice=choice,
        setting="",
        phrase=phrase,
        buys=buys,
        sure=f"{as_fast_as(others)}, and simpler" if simpler else how_sure(ratios, "strategy"),
        decided=not others,
    )


def _worse(study: Study, row: StrategyRow) -> bool:
    """Tell if several seeds show its accuracy to lie below serial's by more than the margin."""
    outcome = study.comparison(row.strategy, BASE)
    return (
        outcome is not None
        and outcome.seeds > 1
        and outcome.verdict == "different"
        and outcome.difference.value < 0
    )
