"""Which strategy to train with."""

from __future__ import annotations

from parashot.findings.accuracy import compare
from parashot.findings.advised import Advice, how_sure, is_decided
from parashot.findings.evidence import Evidence, UntestableError
from parashot.findings.statistics import tied_with_best
from parashot.findings.strategies import BASE, StrategyRow, step_seconds
from parashot.findings.text import listed, ratio, times

ALONE = {"serial": "one replica", "serial-all-cores": "one replica on all cores"}
"""What the variants of a single replica are called in a sentence."""


def advise_strategy(evidence: Evidence) -> Advice:
    """The fastest variant whose accuracy several seeds do not show to be worse than serial's."""
    if evidence.results.strategies is None:
        raise UntestableError(evidence.why_missing("strategies"))
    steps = step_seconds(evidence.results.strategies.blocks)
    rows = {name: row for name, row in evidence.strategies.items() if row.seconds_per_step}
    sound = {name: steps[name] for name, row in rows.items() if not _worse(evidence, row)}
    if not sound:
        raise UntestableError("no strategy was timed; run `dvc repro`")
    best, ratios = tied_with_best(sound, evidence.resampling)
    row = rows[best]
    faster = row.speedup if best != BASE else None
    on = f"{best} on {row.replicas} replicas" if row.replicas > 1 else ALONE.get(best, best)
    nothing = "nothing was faster" if BASE in rows else f"nothing to compare it with: {BASE} was not timed"
    gain = f", {ratio(faster.value)}× as fast as {BASE}" if faster else f": {nothing}"
    tied = [name for name, each in ratios.items() if each.side_of(1) == "around" and name != BASE]
    gain += f" (a tie with {listed(tied)})" if faster and tied else ""
    return Advice(
        topic="strategy",
        choice=best,
        setting="",
        phrase=f"train with {on}{gain}",
        buys=f"{times(faster)} as fast as one replica" if faster else nothing,
        sure=how_sure(ratios, "strategy"),
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
