"""What to use on this machine, read out of the measurements alone: what it buys, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterable

from parashot.questions.accuracy.advice import advise_accuracy
from parashot.questions.advised import Advice
from parashot.questions.batchsz.advice import advise_batchsz
from parashot.questions.evidence import Evidence, UntestableError
from parashot.questions.loader.advice import advise_backend, advise_workers
from parashot.questions.step.advice import advise_precision
from parashot.questions.strategies.advice import advise_strategy

_TOPICS = {
    "strategy": advise_strategy,
    "loader workers": advise_workers,
    "batch size": advise_batchsz,
    "accuracy": advise_accuracy,
    "precision": advise_precision,
    "loader backend": advise_backend,
}


def advise(evidence: Evidence) -> list[Advice]:
    """Advise on every topic; what was not measured says what is missing."""
    found = []
    for topic, choose in _TOPICS.items():
        try:
            found.append(choose(evidence))
        except UntestableError as reason:
            found.append(Advice(topic, "", "", "", "", str(reason), False))
    return found


def answer(advice: Iterable[Advice]) -> str:
    """The study's answer in one sentence."""
    phrases = [each.phrase for each in advice if each.phrase]
    if not phrases:
        return "Nothing was measured yet: run `dvc repro`."
    return f"On this machine, {'; '.join(phrases)}."
