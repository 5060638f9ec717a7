"""Advice on accuracy: does it survive the strategy that is advised?"""

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
    difference, trainings = points(outcome.difference), outcome.trainings
    if outcome.verdict == "equivalent":
        margin = f"± {100 * outcome.margin:g} points"
        choice, phrase = "survives", f"the accuracy survives ({margin}, {trainings})"
    elif outcome.verdict == "different" and outcome.seeds > 1:
        choice = "suffers" if outcome.difference.value < 0 else "gains"
        phrase = f"the accuracy {choice} ({difference}, {trainings})"
    else:
        choice, phrase = "open", f"{trainings} cannot tell whether the accuracy survives"
    luck = "" if outcome.seeds > 1 else ", whose luck is not in that"
    return Advice(
        topic="accuracy",
        choice=choice,
        setting="" if outcome.seeds > 1 else "seeds_study.enabled=true",
        phrase=phrase,
        buys=f"{strategy} minus {BASE}: {difference}",
        sure=f"{outcome.shown}, by {trainings}{luck}",
        decided=choice != "open",
    )
