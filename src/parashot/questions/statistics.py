"""Intervals and tests behind every number that is compared.

Times are few (7 to 20 blocks) and skewed, so they are summarised by their median, with a percentile interval
from resampled blocks. Plain percentile intervals are too short for so few blocks: of 7, a nominal 95%
interval of the median covers it 88 times in 100. Their tails are therefore widened as Hesterberg proposes
("expanded percentile interval", What Teachers Should Know About the Bootstrap, The American Statistician 69,
2015), which `scipy.stats.bootstrap` does not offer. Blocks of two settings that ran in the same round are
resampled together, so that what slowed the whole machine for a while cancels out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, stdtrit  # as in `scipy.stats`, which takes a second to import

from parashot.params import ClaimsParams

Floats = NDArray[np.float64]
Values = Sequence[float] | Floats
Draws = NDArray[np.intp]
"""Indices of rounds."""

Rounds = Mapping[int, float]
"""Measurements of one setting, by round (or episode, or seed)."""


class _Block(Protocol):
    @property
    def round(self) -> int: ...


T = TypeVar("T")
B = TypeVar("B", bound=_Block)


@dataclass(frozen=True)
class Interval:
    """A value with its confidence interval; `low <= value <= high`."""

    value: float
    low: float
    high: float

    @classmethod
    def around(cls, value: float, half: float) -> Interval:
        """Interval from `value - half` to `value + half`."""
        return cls(value, value - half, value + half)

    def scaled(self, factor: float) -> Interval:
        """Multiply all three by a factor of at least 0."""
        return Interval(self.value * factor, self.low * factor, self.high * factor)

    def reciprocal(self, factor: float = 1.0) -> Interval:
        """Return `factor` divided by the interval, which must be positive."""
        return Interval(factor / self.value, factor / self.high, factor / self.low)

    def side_of(self, point: float) -> Literal["above", "below", "around"]:
        """Return on which side of `point` the whole interval lies; `around` where it includes `point`."""
        if self.low > point:
            return "above"
        return "below" if self.high < point else "around"


@dataclass(frozen=True)
class Resampling:
    """Settings of the bootstrap: confidence, number of resamples, and the seed that makes them repeatable."""

    confidence: float = 0.95
    resamples: int = 2000
    seed: int = 0

    @classmethod
    def of(cls, claims: ClaimsParams) -> Resampling:
        """Settings of `params.yaml`."""
        return cls(claims.confidence, claims.resamples)

    def simultaneous(self, comparisons: int) -> Resampling:
        """Settings under which `comparisons` intervals hold together at this confidence (Bonferroni)."""
        share = (1 - self.confidence) / max(comparisons, 1)
        return Resampling(1 - share, self.resamples, self.seed)


def flat(row: Any) -> dict[str, Any]:
    """Fields of a dataclass by name; an `Interval` becomes NAME, NAME_low and NAME_high."""
    tree: dict[str, Any] = {}
    for field in fields(row):
        name, value = field.name, getattr(row, field.name)
        if "Interval" in str(field.type):
            ends = (value.value, value.low, value.high) if value else (None, None, None)
            tree |= zip((name, f"{name}_low", f"{name}_high"), ends, strict=True)
        else:
            tree[name] = value
    return tree


# --- times: medians of few blocks -------------------------------------------------------------------------


def by_round(
    blocks: Iterable[B], setting: Callable[[B], T], value: Callable[[B], float]
) -> dict[T, dict[int, float]]:
    """Values of timed blocks: by setting, then by round."""
    found: dict[T, dict[int, float]] = {}
    for block in blocks:
        found.setdefault(setting(block), {})[block.round] = value(block)
    return found


def median_interval(values: Values, resampling: Resampling) -> Interval:
    """Median of at least 2 values with its bootstrap interval."""
    data = np.asarray(values, dtype=np.float64)
    return _bootstrap(lambda rounds: np.median(data[rounds], axis=-1), len(data), resampling)


def ratio_interval(numerator: Values, denominator: Values, resampling: Resampling) -> Interval:
    """Ratio of two medians, item i of both from round i: the same resampled rounds serve both."""
    above, below = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    if above.shape != below.shape:
        raise ValueError(f"{above.shape} and {below.shape}: paired rounds are needed")

    def ratios(rounds: Draws) -> Floats:
        return np.asarray(np.median(above[rounds], axis=-1) / np.median(below[rounds], axis=-1))

    return _bootstrap(ratios, len(above), resampling)


def paired_ratio(numerator: Rounds, denominator: Rounds, resampling: Resampling) -> Interval:
    """Ratio of two medians over the rounds that measured both, at least 2."""
    return ratio_interval(*paired(numerator, denominator), resampling)


def slope_interval(
    x: Sequence[float], y: Sequence[Sequence[float]] | Floats, resampling: Resampling
) -> Interval:
    """Least-squares slope of y over x; `y[i, j]` is what round i measured at `x[j]`; rounds are resampled."""
    positions = np.asarray(x, dtype=np.float64)
    weights = (positions - positions.mean()) / np.square(positions - positions.mean()).sum()
    slopes = np.asarray(y, dtype=np.float64) @ weights
    return _bootstrap(lambda rounds: slopes[rounds].mean(axis=-1), len(slopes), resampling)


def tied_with_best(seconds: Mapping[T, Rounds], resampling: Resampling) -> tuple[T, dict[T, Interval]]:
    """Return the fastest setting (least median), and of every other one the ratio of its time to the best.

    `seconds` are by setting and round. The intervals hold together (Bonferroni), since the best was picked
    among them; a setting whose interval includes 1 is statistically tied with the best.
    """
    best = min(seconds, key=lambda each: float(np.median(list(seconds[each].values()))))
    together = resampling.simultaneous(len(seconds) - 1)
    ratios = {
        each: paired_ratio(times, seconds[best], together) for each, times in seconds.items() if each != best
    }
    return best, ratios


def tied(ratios: Mapping[T, Interval]) -> list[T]:
    """Settings whose ratio to the best includes 1."""
    return [each for each, ratio in ratios.items() if ratio.side_of(1) == "around"]


def paired(first: Rounds, second: Rounds) -> tuple[Floats, Floats]:
    """Values of the rounds that both have, in the same order."""
    common = sorted(first.keys() & second.keys())
    return np.array([first[each] for each in common]), np.array([second[each] for each in common])


def draw_rounds(rounds: int, resampling: Resampling) -> Draws:
    """Indices of resampled rounds [resamples, rounds], the same in every call."""
    if rounds < 2:
        raise ValueError(f"{rounds} rounds: at least 2 are needed for an interval")
    generator = np.random.default_rng(resampling.seed)
    return generator.integers(rounds, size=(resampling.resamples, rounds))


def drawn_interval(value: float, draws: Floats, rounds: int, resampling: Resampling) -> Interval:
    """Expanded percentile interval around `value` from the statistic of every resample, `draws`."""
    quantile = stdtrit(rounds - 1, (1 + resampling.confidence) / 2)
    tail = float(ndtr(-math.sqrt(rounds / (rounds - 1)) * quantile))
    low = float(np.quantile(draws, tail, method="lower"))
    high = float(np.quantile(draws, 1 - tail, method="higher"))
    return Interval(value, min(low, value), max(high, value))


def _bootstrap(statistic: Callable[[Draws], Floats], rounds: int, resampling: Resampling) -> Interval:
    """Interval of `statistic`, which maps indices of rounds [..., rounds] to values [...]."""
    draws = statistic(draw_rounds(rounds, resampling))
    return drawn_interval(float(statistic(np.arange(rounds))), draws, rounds, resampling)


# --- accuracies: means over episodes, or over a few trainings ---------------------------------------------


def repeated_interval(values: Values, confidence: float) -> Interval:
    """Mean of a few repetitions, at least 3, with its interval by Student's t."""
    mean, error = _mean_and_error(values, 3, "repetitions")
    return Interval.around(mean, float(stdtrit(len(values) - 1, (1 + confidence) / 2)) * error)


@dataclass(frozen=True)
class Equivalence:
    """Outcome of a paired equivalence test; `difference` has the interval at the full confidence (95%)."""

    verdict: Literal["equivalent", "different", "undecided"]
    difference: Interval


def equivalence(differences: Values, margin: float, confidence: float = 0.95) -> Equivalence:
    """Test if paired measurements are the same within ± `margin`.

    Equivalent: two one-sided tests reject a difference as large as the margin, which is to say that the
    interval of the mean difference at level 1 - 2·alpha (90%) lies within ± margin (Schuirmann, J.
    Pharmacokin. Biopharm. 15, 1987). Different: the interval at level 1 - alpha (95%) lies wholly outside of
    it. Otherwise the data do not decide.
    """
    mean, error = _mean_and_error(differences, 2, "pairs")
    one_sided = Interval.around(mean, float(ndtri(confidence)) * error)
    return _decide(one_sided, Interval.around(mean, float(ndtri((1 + confidence) / 2)) * error), margin)


def repeated_equivalence(differences: Values, margin: float, confidence: float) -> Equivalence:
    """Test the differences of a few repetitions, at least 3, in the same way by Student's t."""
    one_sided = repeated_interval(differences, 2 * confidence - 1)
    return _decide(one_sided, repeated_interval(differences, confidence), margin)


def _decide(one_sided: Interval, difference: Interval, margin: float) -> Equivalence:
    if -margin < one_sided.low and one_sided.high < margin:
        return Equivalence("equivalent", difference)
    if difference.low > margin or difference.high < -margin:
        return Equivalence("different", difference)
    return Equivalence("undecided", difference)


def _mean_and_error(values: Values, least: int, noun: str) -> tuple[float, float]:
    """Mean and standard error of at least `least` values."""
    data = np.asarray(values, dtype=np.float64)
    if len(data) < least:
        raise ValueError(f"at least {least} {noun} are needed")
    return float(data.mean()), float(data.std(ddof=1)) / math.sqrt(len(data))
