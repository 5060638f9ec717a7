"""Tests if two trainings reach the same accuracy.

The episodes of a split are the same for every strategy, so two trainings are compared episode by episode.
With one training each, the interval covers the choice of episodes and not the luck of a training. Where
several seeds were trained (`seeds_study`) it covers the luck of trainings, on these episodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from parashot.params import ClaimsParams
from parashot.questions.accuracy.results import Training
from parashot.questions.statistics import Interval, equivalence, paired, repeated_equivalence
from parashot.train.records import EpisodeAccuracy, SeedAccuracy


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

    @property
    def shown(self) -> str:
        """Outcome of the test of the difference, in words."""
        words = {
            "equivalent": "shown to lie within",
            "different": "shown to lie outside of",
            "undecided": "neither shown to lie within nor outside of",
        }
        return f"{words[self.verdict]} ± {100 * self.margin:g} points"

    @property
    def trainings(self) -> str:
        """Number of trainings of each, in words."""
        return f"{self.seeds} seeds" if self.seeds > 1 else "one training each"


def comparisons(
    trainings: Mapping[str, Training], base: str, claims: ClaimsParams
) -> list[AccuracyComparison]:
    """Compare every training with `base`, and DDP's with DP's, where both share 2 episodes or more."""
    pairs = [(name, base) for name in trainings if name != base] + [("ddp", "dp")]
    compared = (
        compare(trainings[first], trainings[second], claims.accuracy_margin, claims.confidence)
        for first, second in pairs
        if first in trainings and second in trainings
    )
    return [each for each in compared if each]


def compare(first: Training, second: Training, margin: float, confidence: float) -> AccuracyComparison | None:
    """Compare two trainings over all seeds of both, or by one training each where fewer than 3 are shared.

    Returns None where they share fewer than 2 episodes.
    """
    names = (first.result.strategy, second.result.strategy)
    by_seed = []
    for seed in sorted({row.seed for row in first.seeds}):
        ours, theirs = (
            _by_episode(row for row in each.seeds if row.seed == seed) for each in (first, second)
        )
        if ours.keys() & theirs.keys():
            by_seed.append(paired(ours, theirs))
    if len(by_seed) > 2:
        means = [float((ours - theirs).mean()) for ours, theirs in by_seed]
        outcome, episodes = repeated_equivalence(means, margin, confidence), len(by_seed[-1][0])
        return AccuracyComparison(*names, episodes, outcome.difference, margin, outcome.verdict, len(by_seed))
    mine, others = paired(_by_episode(first.val_episodes), _by_episode(second.val_episodes))
    if len(mine) < 2:
        return None
    outcome = equivalence(mine - others, margin, confidence)
    return AccuracyComparison(*names, len(mine), outcome.difference, margin, outcome.verdict)


def _by_episode(rows: Iterable[EpisodeAccuracy] | Iterable[SeedAccuracy]) -> dict[int, float]:
    return {row.episode: row.accuracy for row in rows}
