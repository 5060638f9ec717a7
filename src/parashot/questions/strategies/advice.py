"""Which strategy to train with."""

from __future__ import annotations

from parashot.questions.accuracy.compare import compare
from parashot.questions.advised import Advice, as_fast_as, how_sure, is_decided
from parashot.questions.evidence import Evidence, UntestableError
from parashot.questions.statistics import tied, tied_with_best
from parashot.questions.strategies.rows import BASE, StrategyRow, step_seconds
from parashot.questions.text import listed, ratio, times

ALONE = {"serial": "one replica", "serial-all-cores": "one replica on all cores"}
"""What the variants of a single replica are called in a sentence."""

SIMPLEST = ("serial", "serial-all-cores", "ddp")
"""In what order those that tie with the fastest are taken.

One process asks least of a training script; of several, DDP is what PyTorch's own page on DataParallel
recommends (https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html).
"""


def advise_strategy(evidence: Evidence) -> Advice:
    """The fastest variant whose accuracy several seeds do not show to be worse than serial's.

    Of those that cannot be told from it, the simplest.
    """
    if evidence.results.strategies is None:
        raise UntestableError(evidence.why_missing("strategies"))
    steps = step_seconds(evidence.results.strategies.blocks)
    rows = {name: row for name, row in evidence.strategies.items() if row.seconds_per_step}
    sound = {name: steps[name] for name, row in rows.items() if not _worse(evidence, row)}
    if not sound:
        raise UntestableError("no strategy was timed; run `dvc repro`")
    fastest, ratios = tied_with_best(sound, evidence.resampling)
    equals = [fastest, *tied(ratios)]
    choice = next((each for each in SIMPLEST if each in equals), fastest)
    row = rows[choice]
    faster = row.speedup if choice != BASE else None
    on = f"{choice} on {row.replicas} replicas" if row.replicas > 1 else ALONE.get(choice, choice)
    nothing = "nothing was faster" if BASE in rows else f"nothing to compare it with: {BASE} was not timed"
    gain = f", {ratio(faster.value)}× as fast as {BASE}" if faster else f": {nothing}"
    others = [name for name in equals if name != choice]
    gain += f" (a tie with {listed(others)})" if faster and others else ""
    simpler = others and choice in SIMPLEST
    sure = f"{as_fast_as(others)}, and simpler" if simpler else how_sure(ratios, "strategy")
    return Advice(
        topic="strategy",
        choice=choice,
        setting="",
        phrase=f"train with {on}{gain}",
        buys=f"{times(faster)} as fast as {BASE}" if faster else nothing,
        sure=sure,
        decided=is_decided(ratios),
    )


def _worse(evidence: Evidence, row: StrategyRow) -> bool:
    """Whether several seeds show its accuracy to lie below serial's by more than the margin."""
    if row.strategy == BASE:
        return False
    outcome = compare(evidence.results, row.strategy, BASE, evidence.params.claims)
    return (
        outcome is not None
        and outcome.seeds > 1
        and outcome.verdict == "different"
        and outcome.difference.value < 0
    )
