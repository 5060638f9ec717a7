"""Whether the accuracy survives the strategy that is advised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parashot.questions.advice import Advice
from parashot.questions.claim import UntestableError
from parashot.questions.strategies.advice import advise_strategy
from parashot.questions.strategies.rows import BASE
from parashot.questions.text import points

if TYPE_CHECKING:
    from parashot.questions.study import Study

_ONE_REPLICA = Advice(
    topic="accuracy",
    choice="survives",
    setting="",
    phrase="the accuracy survives: one replica splits nothing",
    buys="nothing is split between replicas",
    sure="one replica's accuracy is what the others are compared with",
    decided=True,
)

_SHOWN = {
    "equivalent": "shown to lie within",
    "different": "shown to lie outside of",
    "undecided": "neither shown to lie within nor outside of",
}


def advise_accuracy(study: Study) -> Advice:
    """Compare the advised strategy's accuracy with serial's.

    A training of each shows no difference: what sets two trainings apart is mostly luck.
    """
    strategy = study.strategies[advise_strategy(study).choice].strategy
    if strategy == BASE:
        return _ONE_REPLICA
    outcome = study.comparison(strategy, BASE)
    if outcome is None:
        raise UntestableError(f"{strategy} and {BASE} were not both trained; run `dvc repro`")
    margin, several = f"± {100 * outcome.margin:g} points", outcome.seeds > 1
    difference = points(outcome.difference)
    trainings = f"{outcome.seeds} seeds" if several else "one training each"
    if outcome.verdict == "equivalent":
        choice, phrase = "survives", f"the accuracy survives ({margin}, {trainings})"
    elif outcome.verdict == "different" and several:
        choice = "suffers" if outcome.difference.value < 0 else "gains"
        phrase = f"the accuracy {choice} ({difference}, {trainings})"
    else:
        choice, phrase = "open", f"{trainings} cannot tell whether the accuracy survives"
    luck = f"over {outcome.seeds} seeds" if several else "by one training each, whose luck is not in that"
    return Advice(
        topic="accuracy",
        choice=choice,
        setting="" if several else "seeds_study.enabled=true",
        phrase=phrase,
        buys=f"{strategy} minus {BASE}: {difference}",
        sure=f"{_SHOWN[outcome.verdict]} {margin}, {luck}",
        decided=choice != "open",
    )
