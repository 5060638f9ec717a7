"""Accuracy over episodes, and whether two trainings reach the same.

The episodes of a split are the same for every strategy, so two trainings are compared episode by episode.
What these intervals cover is the choice of episodes, not the luck of a training: one seed was trained.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from parashot.findings.results import Training
from parashot.findings.statistics import Equivalence, Interval, equivalence, mean_interval, paired
from parashot.records import EpisodeAccuracy


@dataclass(frozen=True)
class AccuracyComparison:
    """One training against another on the same validation episodes; `difference` is first minus second."""

    first: str
    second: str
    episodes: int
    difference: Interval
    margin: float
    verdict: str  # equivalent | different | undecided


def compare_accuracy(
    first: Training, second: Training, margin: float, confidence: float
) -> AccuracyComparison | None:
    """Compare two trainings, or return None where they share fewer than 2 episodes."""
    ours, theirs = paired(_by_episode(first.val_episodes), _by_episode(second.val_episodes))
    if len(ours) < 2:
        return None
    outcome: Equivalence = equivalence(ours - theirs, margin, confidence)
    names = (first.result.strategy, second.result.strategy)
    return AccuracyComparison(*names, len(ours), outcome.difference, margin, outcome.verdict)


def episode_accuracy(episodes: Iterable[EpisodeAccuracy]) -> Interval:
    """Mean accuracy with its 95% interval over at least 2 episodes."""
    return mean_interval([episode.accuracy for episode in episodes])


def _by_episode(episodes: Iterable[EpisodeAccuracy]) -> dict[int, float]:
    return {episode.episode: episode.accuracy for episode in episodes}
