"""Intervals and tests behind every number that is compared.

Times are few (7 to 20 blocks) and skewed, so they are summarised by their median, with a percentile interval
from resampled blocks. Plain percentile intervals are too short for so few blocks: of 7, a nominal 95%
interval of the median covers it 88 times in 100. Their tails are therefore widened as Hesterberg proposes
("expanded percentile interval", What Teachers Should Know About the Bootstrap, The American Statistician 69,
2015). Blocks of two settings that ran in the same round are resampled together, so that what slowed the whole
machine for a while cancels out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from parashot.params import ClaimsParams

Floats = NDArray[np.float64]
T = TypeVar("T")
Rounds = NDArray[np.intp]

CI95_Z = 1.96
"""Half width of a 95% interval of a mean, in standard errors: the field's convention for accuracy."""


@dataclass(frozen=True)
class Interval:
    """A value with its confidence interval; `low <= value <= high`."""

    value: float
    low: float
    high: float

    def scaled(self, factor: float) -> Interval:
        """Multiply all three by a factor of at least 0."""
        return Interval(self.value * factor, self.low * factor, self.high * factor)

    def reciprocal(self, factor: float = 1.0) -> Interval:
        """Return `factor` divided by the interval, which must be positive."""
        return Interval(factor / self.value, factor / self.high, factor / self.low)

    def complement(self) -> Interval:
        """Return 1 minus the interval."""
        return Interval(1 - self.value, 1 - self.high, 1 - self.low)

    def side_of(self, point: float) -> Literal["above", "below", "around"]:
        """Where the interval lies: wholly above `point`, wholly below it, or around it."""
        if self.low > point:
            return "above"
        return "below" if self.high < point else "around"


@dataclass(frozen=True)
class Resampling:
    """How intervals are made: confidence, number of resamples, and the seed that makes them repeatable."""

    confidence: float = 0.95
    resamples: int = 2000
    seed: int = 0

    @classmethod
    def of(cls, claims: ClaimsParams) -> Resampling:
        """What `params.yaml` asks for."""
        return cls(claims.confidence, claims.resamples)

    def simultaneous(self, comparisons: int) -> Resampling:
        """Settings under which `comparisons` intervals hold together at this confidence (Bonferroni)."""
        share = (1 - self.confidence) / max(comparisons, 1)
        return Resampling(1 - share, self.resamples, self.seed)


def median_interval(values: Sequence[float] | Floats, resampling: Resampling) -> Interval:
    """Median of at least 2 values with its bootstrap interval."""
    data = np.asarray(values, dtype=np.float64)

    def medians(rounds: Rounds) -> Floats:
        return _medians(data[rounds])

    return _bootstrap(medians, len(data), resampling)


def ratio_interval(
    numerator: Sequence[float] | Floats, denominator: Sequence[float] | Floats, resampling: Resampling
) -> Interval:
    """Ratio of two medians, item i of both from round i: the same resampled rounds serve both."""
    above, below = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    if above.shape != below.shape:
        raise ValueError(f"{above.shape} and {below.shape}: paired rounds are needed")

    def ratios(rounds: Rounds) -> Floats:
        return _medians(above[rounds]) / _medians(below[rounds])

    return _bootstrap(ratios, len(above), resampling)


def slope_interval(
    x: Sequence[float], y: Sequence[Sequence[float]] | Floats, resampling: Resampling
) -> Interval:
    """Least-squares slope of y over x; `y[i, j]` is what round i measured at `x[j]`; rounds are resampled."""
    positions = np.asarray(x, dtype=np.float64)
    weights = (positions - positions.mean()) / np.square(positions - positions.mean()).sum()
    slopes = np.asarray(y, dtype=np.float64) @ weights

    def means(rounds: Rounds) -> Floats:
        return np.asarray(slopes[rounds].mean(axis=-1), dtype=np.float64)

    return _bootstrap(means, len(slopes), resampling)


def mean_interval(values: Sequence[float] | Floats) -> Interval:
    """Mean over episodes with its 95% interval: mean ± 1.96 · std / √n, std with n - 1."""
    data = np.asarray(values, dtype=np.float64)
    if len(data) < 2:
        raise ValueError("at least 2 episodes are needed for an interval")
    half = CI95_Z * float(data.std(ddof=1)) / math.sqrt(len(data))
    return Interval(float(data.mean()), float(data.mean()) - half, float(data.mean()) + half)


def repeated_interval(values: Sequence[float] | Floats, confidence: float) -> Interval:
    """Mean of a few repetitions, at least 3, with its interval by Student's t."""
    data = np.asarray(values, dtype=np.float64)
    if len(data) < 3:
        raise ValueError("at least 3 repetitions are needed for an interval")
    error = float(data.std(ddof=1)) / math.sqrt(len(data))
    half = _student_quantile((1 + confidence) / 2, len(data) - 1) * error
    return Interval(float(data.mean()), float(data.mean()) - half, float(data.mean()) + half)


@dataclass(frozen=True)
class Equivalence:
    """Outcome of a paired equivalence test; `difference` has the interval at the full confidence (95%)."""

    verdict: Literal["equivalent", "different", "undecided"]
    difference: Interval


def equivalence(
    differences: Sequence[float] | Floats, margin: float, confidence: float = 0.95
) -> Equivalence:
    """Are paired measurements the same within ± `margin`?

    Equivalent: two one-sided tests reject a difference as large as the margin, which is to say that the
    interval of the mean difference at level 1 - 2·alpha (90%) lies within ± margin (Schuirmann, J.
    Pharmacokin. Biopharm. 15, 1987). Different: the interval at level 1 - alpha (95%) lies wholly outside of
    it. Otherwise the data do not decide.
    """
    data = np.asarray(differences, dtype=np.float64)
    if len(data) < 2:
        raise ValueError("at least 2 pairs are needed")
    mean, error = float(data.mean()), float(data.std(ddof=1)) / math.sqrt(len(data))
    one_sided = NormalDist().inv_cdf(confidence) * error
    two_sided = NormalDist().inv_cdf((1 + confidence) / 2) * error
    difference = Interval(mean, mean - two_sided, mean + two_sided)
    if abs(mean) + one_sided < margin:
        return Equivalence("equivalent", difference)
    if abs(mean) - two_sided > margin:
        return Equivalence("different", difference)
    return Equivalence("undecided", difference)


def repeated_equivalence(
    differences: Sequence[float] | Floats, margin: float, confidence: float
) -> Equivalence:
    """The same for the differences of a few repetitions, at least 3, by Student's t."""
    difference = repeated_interval(differences, confidence)
    one_sided = repeated_interval(differences, 2 * confidence - 1)
    if -margin < one_sided.low and one_sided.high < margin:
        return Equivalence("equivalent", difference)
    if difference.low > margin or difference.high < -margin:
        return Equivalence("different", difference)
    return Equivalence("undecided", difference)


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> tuple[Floats, Floats]:
    """Values of the rounds (or episodes) that both have, in the same order."""
    common = sorted(first.keys() & second.keys())
    return np.array([first[each] for each in common]), np.array([second[each] for each in common])


def tied_with_best(
    seconds: Mapping[T, Mapping[int, float]], resampling: Resampling
) -> tuple[T, dict[T, Interval]]:
    """Name the fastest setting (least median) and, for every other one, how many times as long it takes.

    The intervals hold together (Bonferroni), since the best was picked among them; a setting whose interval
    includes 1 cannot be told from the best.
    """
    best = min(seconds, key=lambda each: float(np.median(list(seconds[each].values()))))
    together = resampling.simultaneous(len(seconds) - 1)
    ratios = {
        each: ratio_interval(*paired(times, seconds[best]), together)
        for each, times in seconds.items()
        if each != best
    }
    return best, ratios


def tied(ratios: Mapping[T, Interval]) -> list[T]:
    """Name those that cannot be told from what they are compared with: whose interval includes 1."""
    return [each for each, ratio in ratios.items() if ratio.side_of(1) == "around"]


def draw_rounds(rounds: int, resampling: Resampling) -> Rounds:
    """Indices of resampled rounds [resamples, rounds], the same in every call."""
    if rounds < 2:
        raise ValueError(f"{rounds} rounds: at least 2 are needed for an interval")
    generator = np.random.default_rng(resampling.seed)
    return generator.integers(rounds, size=(resampling.resamples, rounds))


def drawn_interval(value: float, draws: Floats, rounds: int, resampling: Resampling) -> Interval:
    """Percentile interval around `value` from what the resampled rounds gave, widened for few rounds."""
    tail = _tail(resampling.confidence, rounds)
    low = float(np.quantile(draws, tail, method="lower"))
    high = float(np.quantile(draws, 1 - tail, method="higher"))
    return Interval(value, min(low, value), max(high, value))


def _bootstrap(statistic: Callable[[Rounds], Floats], rounds: int, resampling: Resampling) -> Interval:
    """Percentile interval of `statistic`, which maps indices of rounds [..., rounds] to values [...]."""
    draws = statistic(draw_rounds(rounds, resampling))
    return drawn_interval(float(statistic(np.arange(rounds))), draws, rounds, resampling)


def _tail(confidence: float, rounds: int) -> float:
    """Share of resamples to cut off on each side, widened for few rounds."""
    return NormalDist().cdf(
        -math.sqrt(rounds / (rounds - 1)) * _student_quantile((1 + confidence) / 2, rounds - 1)
    )


def _medians(values: Floats) -> Floats:
    """Median over the last axis."""
    return np.asarray(np.median(values, axis=-1), dtype=np.float64)


def _student_quantile(probability: float, freedom: int) -> float:
    """Quantile of Student's t by its expansion around the normal one (Abramowitz and Stegun, 26.7.5)."""
    z = NormalDist().inv_cdf(probability)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / freedom**power for power, term in enumerate(terms, start=1))
