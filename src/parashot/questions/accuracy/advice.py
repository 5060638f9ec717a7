"""Whether the accuracy survives the strategy that is advised."""

from __future__ import annotations

from parashot.questions.accuracy.compare import AccuracyComparison, compare
from parashot.questions.advised import Advice
from parashot.questions.evidence import Evidence, UntestableError
from parashot.questions.strategies.advice import advise_strategy
from parashot.questions.strategies.rows import BASE
from parashot.questions.text import points

_ONE_REPLICA = Advice(
    topic="accuracy",
    choice="survives",
    setting="",
    phrase="the accuracy survives: one replica splits nothing",
    buys="nothing is split between replicas",
    sure="one replica's accuracy is what the others are compared with",
    decided=True,
)


def advise_accuracy(evidence: Evidence) -> Advice:
    """The advised strategy's accuracy against serial's.

    A training of each shows no difference: what sets two trainings apart is mostly luck.
    """
    strategy = evidence.strategies[advise_strategy(evidence).choice].strategy
    if strategy == BASE:
        return _ONE_REPLICA
    outcome = compare(evidence.results, strategy, BASE, evidence.params.claims)
    if outcome is None:
        raise UntestableError(f"{strategy} and {BASE} were not both trained; run `dvc repro`")
    margin = f"± {100 * outcome.margin:g} points"
    several = outcome.seeds > 1
    choice, phrase = _words(outcome, margin)
    return Advice(
        topic="accuracy",
        choice=choice,
        setting="" if several else "seeds_study.enabled=true",
        phrase=phrase,
        buys=f"{strategy} minus {BASE}: {points(outcome.difference)}",
        sure=f"{_shown(outcome, margin)}, "
        + (f"over {outcome.seeds} seeds" if several else "by one training each, whose luck is not in that"),
        decided=choice != "open",
    )


def _words(outcome: AccuracyComparison, margin: str) -> tuple[str, str]:
    """The verdict, and as a part of the study's answer."""
    trainings = f"{outcome.seeds} seeds" if outcome.seeds > 1 else "one training each"
    if outcome.verdict == "equivalent":
        return "survives", f"the accuracy survives ({margin}, {trainings})"
    if outcome.verdict == "undecided" or outcome.seeds == 1:
        return "open", f"{trainings} cannot tell whether the accuracy survives"
    change = "suffers" if outcome.difference.value < 0 else "gains"
    return change, f"the accuracy {change} ({points(outcome.difference)}, {trainings})"


def _shown(outcome: AccuracyComparison, margin: str) -> str:
    return {
        "equivalent": f"shown to lie within {margin}",
        "different": f"shown to lie outside of {margin}",
        "undecided": f"neither shown to lie within {margin} nor outside",
    }[outcome.verdict]
