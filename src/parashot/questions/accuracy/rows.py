"""Comparisons of the accuracies of trainings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from parashot.params import ClaimsParams, Params
from parashot.questions.accuracy.records import Training
from parashot.questions.batchsz.records import BatchszResults
from parashot.questions.batchsz.rows import reached
from parashot.questions.statistics import (
    Interval,
    Values,
    by_round,
    differences,
    equivalence,
    mean_interval,
    repeated_interval,
)
from parashot.train.records import EpisodeAccuracy

PRECISIONS = ("bf16", "fp32")


@dataclass(frozen=True)
class AccuracyComparison:
    """One training against another on the same validation episodes; `difference` is first minus second.

    The episodes of a split are the same for every strategy, so trainings are compared episode by episode.
    Where several seeds were trained (`seeds_study`) the interval is over trainings, on these episodes. With
    one training each it is over episodes: it tells these two networks apart, and decides nothing about the
    strategies, unless their gradients in float64 are equal: then they are one algorithm. The interval is the
    one that `verdict` rests on: at 90% where two one-sided tests at 95% have shown them to be equivalent.
    """

    first: str
    second: str
    episodes: int
    difference: Interval
    margin: float
    verdict: str  # equivalent | different | undecided | one algorithm
    seeds: int
    confidence: float  # of the interval
    rounding: float | None = None  # difference of the twin of `second`, which rounding alone sets apart

    @property
    def shown(self) -> str:
        """Outcome of the test of the difference, in words."""
        if self.seeds == 1:
            return "of one training each, whose luck is not in its interval"
        words = {
            "equivalent": "shown to lie within",
            "different": "shown to lie outside of",
            "undecided": "neither shown to lie within nor outside of",
        }
        interval = f", by a {self.confidence:.0%} interval" if self.verdict == "equivalent" else ""
        return f"{words[self.verdict]} ± {100 * self.margin:g} points{interval}"

    @property
    def is_worse(self) -> bool:
        """Whether the first is shown to be less accurate by more than the margin."""
        return self.verdict == "different" and self.difference.value < 0

    @property
    def trainings(self) -> str:
        """Number of trainings of each, in words."""
        return f"{self.seeds} seeds" if self.seeds > 1 else "one training each"

    @property
    def over(self) -> str:
        """What the interval is over, in words."""
        return f"trainings, {self.seeds} of each" if self.seeds > 1 else "episodes, of these two networks"


def comparisons(
    trainings: Mapping[str, Training], base: str, claims: ClaimsParams, same_algorithm: Collection[str]
) -> list[AccuracyComparison]:
    """Compare every training with `base`, and DDP's with DP's, where both share 2 episodes or more.

    same_algorithm: strategies whose gradients are those of `base`.
    """
    pairs = [(name, base) for name in trainings if name != base] + [("ddp", "dp")]
    compared = (
        compare(trainings[first], trainings[second], claims)
        for first, second in pairs
        if first in trainings and second in trainings
    )
    alike = {base, *same_algorithm}
    return [
        replace(each, verdict="one algorithm") if {each.first, each.second} <= alike else each
        for each in compared
        if each
    ]


def compare(first: Training, second: Training, claims: ClaimsParams) -> AccuracyComparison | None:
    """Compare two trainings over all seeds of both, or one training each where fewer than 3 are shared.

    Returns None where they share fewer than 2 episodes.
    """
    ours, theirs = _by_seed(first), _by_seed(second)
    by_seed = [differences(ours[seed], theirs[seed]) for seed in sorted(ours.keys() & theirs.keys())]
    names, margin = (first.result.strategy, second.result.strategy), claims.accuracy_margin
    if len(by_seed) > 2:
        means = [float(each.mean()) for each in by_seed]
        found = compare_trainings(*names, means, len(by_seed[-1]), claims)
    else:
        lead = differences(_by_episode(first.val_episodes), _by_episode(second.val_episodes))
        if len(lead) < 2:
            return None
        interval = mean_interval(lead, claims.confidence)
        found = AccuracyComparison(*names, len(lead), interval, margin, "undecided", 1, claims.confidence)
    rounding = differences(_by_episode(second.twin), _by_episode(second.val_episodes))
    return replace(found, rounding=float(rounding.mean()) if len(rounding) else None)


def compare_trainings(
    first: str, second: str, paired: Values, episodes: int, claims: ClaimsParams
) -> AccuracyComparison:
    """Compare two ways of training by the differences of at least 3 pairs, each over so many `episodes`."""
    margin, confidence = claims.accuracy_margin, claims.confidence
    verdict = equivalence(paired, margin, confidence)
    level = 2 * confidence - 1 if verdict == "equivalent" else confidence
    difference = repeated_interval(paired, level)
    return AccuracyComparison(first, second, episodes, difference, margin, verdict, len(paired), level)


def compare_precisions(sizes: BatchszResults, params: Params) -> list[AccuracyComparison]:
    """Compare the baseline's trainings in bf16 with those in fp32, if there are any."""
    if not sizes.in_fp32:
        return []
    half = reached(sizes.trainings)[params.batchsz_study.baseline]
    paired = differences(half, {each.seed: each.val_accuracy for each in sizes.in_fp32})
    return [compare_trainings(*PRECISIONS, paired, params.train.val_episodes, params.claims)]


def _by_seed(training: Training) -> dict[int, dict[int, float]]:
    return by_round((row.seed, row.episode, row.accuracy) for row in training.seeds)


def _by_episode(rows: Iterable[EpisodeAccuracy]) -> dict[int, float]:
    return {row.episode: row.accuracy for row in rows}
