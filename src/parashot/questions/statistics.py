"""Intervals and tests behind every number that is compared.

One setting: times are few (7 to 20 blocks) and skewed, so they are summarised by their median, with a
percentile interval from resampled blocks. Plain percentile intervals are too short for so few blocks: of 7, a
nominal 95% interval of the median covers it 88 times in 100. Their tails are therefore widened as Hesterberg
proposes ("expanded percentile interval", What Teachers Should Know About the Bootstrap, The American
Statistician 69, 2015), which `scipy.stats.bootstrap` does not offer.

Two settings: the logarithm of the ratio of their times in each round, so that what slowed the whole machine
for a while cancels out; its mean, with an interval by Student's t.

Where rounds were measured in several launches of the processes, each of which is a little faster or slower,
the launches are what repeats: each counts by the median of its rounds, which one disturbed round does not
move. How often these intervals cover: `python -m benchmarks coverage`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from statistics import median
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, stdtrit  # as in `scipy.stats`, which takes a second to import

from parashot.errors import RecordError

Floats = NDArray[np.float64]
Values = Sequence[float] | Floats
Draws = NDArray[np.intp]
"""Indices of rounds."""

Rounds = Mapping[Any, float]
"""Measurements of one setting, by round (or episode, or seed), or by launch and round."""

T = TypeVar("T")

ENOUGH_LAUNCHES = 5
"""With as many launches, Student's t over them is about as narrow as over rounds."""

CONFIDENCE = 0.95
"""Of intervals, where params do not say another."""

RESAMPLES = 2000
"""Of the bootstrap."""


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

    def widened(self, share: float) -> Interval:
        """Let an independent error of ± `share`, a part of the positive value, count as well."""
        up, down = (
            math.exp(math.hypot(math.log(ratio), math.log1p(share)))
            for ratio in (self.high / self.value, self.value / self.low)
        )
        return Interval(self.value, self.value / down, self.value * up)

    def side_of(self, point: float) -> Literal["above", "below", "around"]:
        """Return on which side of `point` the whole interval lies; `around` where it includes `point`."""
        if self.low > point:
            return "above"
        return "below" if self.high < point else "around"


def together(confidence: float, comparisons: int) -> float:
    """Confidence of each of `comparisons` intervals that hold together at `confidence` (Bonferroni)."""
    return 1 - (1 - confidence) / max(comparisons, 1)


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


def by_round(measured: Iterable[tuple[T, Any, float]]) -> dict[T, dict[Any, float]]:
    """Values by setting, then by round, of tuples of setting, round and value."""
    found: dict[T, dict[Any, float]] = {}
    for setting, number, value in measured:
        found.setdefault(setting, {})[number] = value
    return found


def median_interval(values: Values, confidence: float) -> Interval:
    """Median of at least 2 values with its bootstrap interval. Raises `RecordError` for fewer."""
    data = np.asarray(values, dtype=np.float64)
    draws = np.median(data[draw_rounds(len(data))], axis=-1)
    return drawn_interval(float(np.median(data)), draws, len(data), confidence)


def median_of_rounds(rounds: Rounds, confidence: float) -> Interval:
    """Median of at least 2 rounds with its bootstrap interval.

    With `ENOUGH_LAUNCHES`, of the medians of the launches: these are what repeats.
    """
    values = np.array([*rounds.values()])
    of_launch = _by_launch([*rounds], values)
    if len(of_launch) >= ENOUGH_LAUNCHES:
        values = np.array([median(each) for each in of_launch])
    return median_interval(values, confidence)


def _by_launch(rounds: Sequence[Any], values: Floats) -> list[Floats]:
    """Values of each launch; rounds that name none are of one."""
    launches = [each[0] if isinstance(each, tuple) else 0 for each in rounds]
    return [values[np.equal(launches, each)] for each in sorted({*launches})]


def paired_ratio(numerator: Rounds, denominator: Rounds, confidence: float) -> Interval:
    """Ratio of two settings: the geometric mean of the ratios of the rounds that measured both, at least 2.

    With `ENOUGH_LAUNCHES`, the geometric mean over launches of the median ratio of each, and Student's t over
    launches. With fewer, the wider of Student's intervals over launches and over rounds: a few launches that
    agree by luck must not make it narrow.
    """
    above, below = paired(numerator, denominator)
    logs = np.log(above / below)
    of_launch = _by_launch(sorted(numerator.keys() & denominator.keys()), logs)
    if len(of_launch) >= ENOUGH_LAUNCHES:
        logs = np.array([median(each) for each in of_launch])
    mean, half = _mean_and_half_width(logs, confidence)
    if 1 < len(of_launch) < min(ENOUGH_LAUNCHES, len(logs)):
        half = max(half, _mean_and_half_width([each.mean() for each in of_launch], confidence)[1])
    return Interval(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


@dataclass(frozen=True)
class Ranking(Generic[T]):
    """Settings against the best of the others: how many times as long each takes, or how much it lacks.

    Hsu, Multiple Comparisons, 1996, chapter 4, with Bonferroni in place of equal variances: each setting is
    compared with every other, at the confidence that holds for all comparisons with one; whichever is shown
    to be worse than another is no contender. The truly best stays a contender at that confidence, and with it
    all upper bounds hold together: the greatest over the contenders is one against the best. What is behind
    any other is at least as far behind the best, so the greatest lower bound over all others is one too, for
    each setting by itself.

    behind: ratio to the best of the others, or difference. better: of each setting, those shown to be better
    than it. even: value of `behind` of what is equal, 1 or 0. margin: a setting that is at most so much over
    `even` is as good.
    """

    behind: Mapping[T, Interval]
    better: Mapping[T, Sequence[T]]
    even: float
    margin: float

    @property
    def contenders(self) -> list[T]:
        """Settings not shown to be worse than another."""
        return [each for each, those in self.better.items() if not those]

    @property
    def best(self) -> T:
        """The one that is least behind as measured."""
        return min(self.behind, key=lambda each: self.behind[each].value)

    @property
    def as_good(self) -> list[T]:
        """Settings shown to be within the margin of the best."""
        return [each for each, behind in self.behind.items() if behind.high <= self.even + self.margin]

    @property
    def possible(self) -> list[T]:
        """Settings not shown to be outside of the margin."""
        return [each for each, behind in self.behind.items() if behind.low <= self.even + self.margin]

    @classmethod
    def by_time(cls, seconds: Mapping[T, Rounds], confidence: float, margin: float) -> Ranking[T]:
        """Rank settings by their seconds, by round, the fastest first; margin: share of its time."""
        level = together(confidence, len(seconds) - 1)
        return cls._ranked(seconds, lambda own, other: paired_ratio(own, other, level), 1, margin)

    @classmethod
    def by_accuracy(cls, reached: Mapping[T, Rounds], confidence: float, margin: float) -> Ranking[T]:
        """Rank settings by the accuracies of their trainings, by seed; margin: difference of accuracies."""
        level = together(confidence, len(reached) - 1)

        def lack(own: Rounds, other: Rounds) -> Interval:
            return repeated_interval(differences(other, own), level)

        return cls._ranked(reached, lack, 0, margin)

    @classmethod
    def _ranked(
        cls,
        settings: Mapping[T, Rounds],
        compare: Callable[[Rounds, Rounds], Interval],
        even: float,
        margin: float,
    ) -> Ranking[T]:
        behind, better = dict[T, Interval](), dict[T, list[T]]()
        pairs = {
            each: {other: compare(own, settings[other]) for other in settings if other != each}
            for each, own in settings.items()
        }
        for each, others in pairs.items():
            better[each] = [other for other, pair in others.items() if pair.low > even]
        for each, others in pairs.items():
            against = [pair for other, pair in others.items() if not better[other]] or [*others.values()]
            value = max((pair.value for pair in others.values()), default=even)
            low = max((pair.low for pair in others.values()), default=even)
            behind[each] = Interval(value, low, max([value, *(pair.high for pair in against)]))
        return cls(behind, better, even, margin)


def paired(first: Rounds, second: Rounds) -> tuple[Floats, Floats]:
    """Values of the rounds that both have, in the same order."""
    common = sorted(first.keys() & second.keys())
    return np.array([first[each] for each in common]), np.array([second[each] for each in common])


def differences(first: Rounds, second: Rounds) -> Floats:
    """First minus second, of the rounds that both have."""
    mine, others = paired(first, second)
    return mine - others


@cache
def draw_rounds(rounds: int) -> Draws:
    """Indices of resampled rounds [resamples, rounds], the same in every call, to be read only."""
    if rounds < 2:
        raise RecordError("at least 2 timed blocks of every setting are needed; run `dvc repro -f`")
    return np.random.default_rng(0).integers(rounds, size=(RESAMPLES, rounds))


def drawn_interval(value: float, draws: Floats, rounds: int, confidence: float) -> Interval:
    """Expanded percentile interval around `value` from the statistic of every resample, `draws`."""
    quantile = stdtrit(rounds - 1, (1 + confidence) / 2)
    tail = float(ndtr(-math.sqrt(rounds / (rounds - 1)) * quantile))
    low = float(np.quantile(draws, tail, method="lower"))
    high = float(np.quantile(draws, 1 - tail, method="higher"))
    return Interval(value, min(low, value), max(high, value))


# --- accuracies: means over episodes, or over a few trainings ---------------------------------------------


def mean_interval(values: Values, confidence: float) -> Interval:
    """Mean of many values with its normal interval."""
    mean, error = _mean_and_error(values, 2)
    return Interval.around(mean, float(ndtri((1 + confidence) / 2)) * error)


def repeated_interval(values: Values, confidence: float) -> Interval:
    """Mean of a few repetitions, at least 3, with its interval by Student's t."""
    return Interval.around(*_mean_and_half_width(values, confidence, 3))


def equivalence(
    differences: Values, margin: float, confidence: float
) -> Literal["equivalent", "different", "undecided"]:
    """Test if paired differences of a few repetitions, at least 3, are 0 within ± `margin`.

    Equivalent: two one-sided tests reject a difference as large as the margin, which is to say that the
    interval of the mean difference at level 1 - 2·alpha (90%) lies within ± margin (Schuirmann, J.
    Pharmacokin. Biopharm. 15, 1987). Different: the interval at level 1 - alpha (95%) lies wholly outside of
    it. Otherwise the data do not decide.
    """
    one_sided, two_sided = (repeated_interval(differences, each) for each in (2 * confidence - 1, confidence))
    if -margin < one_sided.low and one_sided.high < margin:
        return "equivalent"
    return "different" if two_sided.low > margin or two_sided.high < -margin else "undecided"


def _mean_and_half_width(values: Values, confidence: float, least: int = 2) -> tuple[float, float]:
    """Mean of at least `least` values, and half the width of its interval by Student's t."""
    mean, error = _mean_and_error(values, least)
    return mean, float(stdtrit(len(values) - 1, (1 + confidence) / 2)) * error


def _mean_and_error(values: Values, least: int) -> tuple[float, float]:
    """Mean and standard error of at least `least` values."""
    data = np.asarray(values, dtype=np.float64)
    if len(data) < least:
        raise ValueError(f"at least {least} values are needed")
    return float(data.mean()), float(data.std(ddof=1)) / math.sqrt(len(data))
