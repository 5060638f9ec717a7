"""Accuracy over episodes, and whether two trainings reach the same.

The episodes of a split are the same for every strategy, so two trainings are compared episode by episode.
With one training each, the interval covers the choice of episodes and not the luck of a training. Where
several seeds were trained (`seeds_study`) it covers the luck of trainings, on these episodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from parashot.params import ClaimsParams
from parashot.questions.results import StudyResults, Training
from parashot.questions.statistics import (
    Equivalence,
    Interval,
    equivalence,
    mean_interval,
    paired,
    repeated_equivalence,
)
from parashot.train.records import EpisodeAccuracy


@dataclass(frozen=True)
class AccuracyComparison:
    """One training against another on the same validation episodes; `difference` is first minus second."""

    first: str
    second: str
    episodes: int
    difference: Interval
    margin: float
    verdict: str  # equivalent | different | undecided
    seeds: int = 1


def compare(
    results: StudyResults, first: str, second: str, claims: ClaimsParams
) -> AccuracyComparison | None:
    """Compare two strategies over all seeds that both were trained with, or by one training each.

    Returns None where one of them is not there, or where they share fewer than 2 episodes.
    """
    ours, theirs = results.training.get(first), results.training.get(second)
    if ours is None or theirs is None:
        return None
    if over_seeds := compare_over_seeds(ours, theirs, claims.accuracy_margin, claims.confidence):
        return over_seeds
    return compare_accuracy(ours, theirs, claims.accuracy_margin, claims.confidence)


def compare_over_seeds(
    first: Training, second: Training, margin: float, confidence: float
) -> AccuracyComparison | None:
    """Compare by the mean differences of seeds, each over the same episodes; None with fewer than 3 seeds."""
    differences, episodes = [], 0
    for seed in sorted({row.seed for row in first.seeds}):
        ours, theirs = paired(_of_seed(first, seed), _of_seed(second, seed))
        if len(ours):
            differences.append(float((ours - theirs).mean()))
            episodes = len(ours)
    if len(differences) < 3:
        return None
    outcome = repeated_equivalence(differences, margin, confidence)
    names = (first.result.strategy, second.result.strategy)
    return AccuracyComparison(*names, episodes, outcome.difference, margin, outcome.verdict, len(differences))


def _of_seed(training: Training, seed: int) -> dict[int, float]:
    return {row.episode: row.accuracy for row in training.seeds if row.seed == seed}


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
