"""How often the project's intervals cover, and its choices err, on simulated times whose truth is known.

A procedure misses where coverage is more than 3 points below nominal, or errors of a family more than 3
points above what is allowed: the largest share of studies in which the fastest setting was left out, a bound
did not hold, or one slower by 6% was called as good. Decisions rest on ratios; tables give seconds too.

A block's time is the setting's true time with noise of one of five kinds:

independent: a standard deviation of 6% in each block
drift:       the machine's speed wanders from block to block (AR(1) of 0.9, 10%), beside 6%
outliers:    every tenth block takes half as long again, beside 6%
launch:      each launch of the processes makes each setting 4% faster or slower, beside 6%
steady:      the same beside 1%: launches make the difference
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.outcome import Cell, Outcome, Table
from parashot.questions.statistics import CONFIDENCE, Ranking, Rounds, median_of_rounds, paired_ratio
from parashot.questions.timed import rounds_of_launch

Floats = NDArray[np.float64]
Noise = Callable[[int, list[int], np.random.Generator], Floats]
"""Logarithms of noise [rounds, settings], from the number of settings and the launch of each round."""

NOISE, DRIFT, STICKY, OUTLIERS, OUTLIER, LAUNCH = 0.06, 0.1, 0.9, 0.1, 0.5, 0.04
LITTLE_NOISE = 0.01
ROUNDS, LAUNCHES, MARGIN = 18, 6, 0.05
"""Rounds of all launches together, launches, and how much slower a setting may be to be as good."""

FEWER_LAUNCHES, FEWER_ROUNDS = (4, 3, 2), 8
"""Of `parashot measure` where time is short, and of a study that asks for so few."""

FAMILIES = (3, 5, 11)
"""Settings that are compared with the best of them."""

TWO = np.array([1.0, 1.2])
"""True times of two settings that are compared."""

TOLERANCE = 0.03


def independent(
    settings: int, launches: list[int], generator: np.random.Generator, deviation: float = NOISE
) -> Floats:
    """Noise of each block by itself."""
    return generator.normal(0, deviation, (len(launches), settings))


def drift(settings: int, launches: list[int], generator: np.random.Generator) -> Floats:
    """Speed that wanders from block to block, whichever setting runs."""
    rounds = len(launches)
    wander = np.empty(rounds * settings)
    wander[0] = generator.normal(0, DRIFT)
    for block in range(1, len(wander)):
        wander[block] = STICKY * wander[block - 1] + generator.normal(0, DRIFT * np.sqrt(1 - STICKY**2))
    order = np.argsort(generator.random((rounds, settings)), axis=1)
    placed: Floats = np.empty((rounds, settings))
    np.put_along_axis(placed, order, wander.reshape(rounds, settings), axis=1)
    return placed + independent(settings, launches, generator)


def outliers(settings: int, launches: list[int], generator: np.random.Generator) -> Floats:
    """Blocks that something else has slowed."""
    hit = generator.random((len(launches), settings)) < OUTLIERS
    return independent(settings, launches, generator) + math.log1p(OUTLIER) * hit.astype(np.float64)


def launch(
    settings: int, launches: list[int], generator: np.random.Generator, deviation: float = NOISE
) -> Floats:
    """An effect of each launch on each setting."""
    effects: Floats = generator.normal(0, LAUNCH, (max(launches) + 1, settings))
    return effects[launches] + independent(settings, launches, generator, deviation)


def steady(settings: int, launches: list[int], generator: np.random.Generator) -> Floats:
    """The same, and little noise beside it."""
    return launch(settings, launches, generator, LITTLE_NOISE)


NOISES: Sequence[Noise] = (independent, drift, outliers, launch, steady)


def run(quick: bool) -> Outcome:
    """Simulate every procedure under every kind of noise."""
    trials = 40 if quick else 4000
    coverage = {noise.__name__: _coverage(noise, trials) for noise in NOISES}
    families = {
        noise.__name__: {f"best of {each}": _family_errors(noise, each, trials) for each in FAMILIES}
        for noise in NOISES
    }
    largest = {
        noise: {name: max(errors.values()) for name, errors in each.items()}
        for noise, each in families.items()
    }
    single = f"Coverage of 95% intervals, {ROUNDS} rounds over {LAUNCHES} launches, {FEWER_ROUNDS} over fewer"
    several = (
        f"Best of several, {ROUNDS} rounds over {LAUNCHES} launches: errors of the family, 5% are allowed"
    )
    tables = [
        _table(single, coverage, lambda share: CONFIDENCE - share),
        _table(several, largest, lambda share: share - (1 - CONFIDENCE)),
    ]
    return Outcome(
        "coverage", tables, raw={"errors": families}, settings={"trials": trials, "margin": MARGIN}
    )


def _table(title: str, rows: Mapping[str, Mapping[str, float]], short: Callable[[float], float]) -> Table:
    """A row per kind of noise, which names the procedures that fall `short` of nominal by too much."""
    procedures = [*next(iter(rows.values()))]
    cells: list[list[Cell]] = [
        [
            noise,
            *shares.values(),
            ", ".join(each for each in procedures if short(shares[each]) > TOLERANCE) or "none",
        ]
        for noise, shares in rows.items()
    ]
    return Table(title, ["noise", *procedures, "misses"], cells)


def _studies(
    noise: Noise, truth: Floats, trials: int, rounds: int = ROUNDS, launches: int = LAUNCHES
) -> Iterator[list[Rounds]]:
    """Simulated studies: times of each setting by launch and round."""
    generator = np.random.default_rng(0)
    launch_of = [each for each in range(launches) for _ in rounds_of_launch(rounds, each, launches)]
    for _ in range(trials):
        times = truth * np.exp(noise(len(truth), launch_of, generator))
        yield [
            {(launch_of[number], number): value for number, value in enumerate(column)}
            for column in times.T.tolist()
        ]


def _coverage(noise: Noise, trials: int) -> dict[str, float]:
    """Share of studies whose interval covers: of the seconds of one setting, and of the ratio of two."""
    one = two = 0
    for first, second in _studies(noise, TWO, trials):
        median = median_of_rounds(first, CONFIDENCE)
        one += median.low <= 1 <= median.high
        two += _ratio_is_covered(first, second)
    shares = {"seconds": one / trials, "ratio": two / trials}
    for launches in FEWER_LAUNCHES:
        studies = _studies(noise, TWO, trials, FEWER_ROUNDS, launches)
        covered = sum(_ratio_is_covered(first, second) for first, second in studies)
        shares[f"ratio, {launches} launches"] = covered / trials
    return shares


def _ratio_is_covered(first: Rounds, second: Rounds) -> bool:
    ratio = paired_ratio(second, first, CONFIDENCE)
    return bool(ratio.low <= TWO[1] <= ratio.high)


def _family_errors(noise: Noise, settings: int, trials: int) -> dict[str, float]:
    """Shares of studies that err, of the fastest, one slower by 6%, and others up to half as slow again."""
    truth = np.linspace(1.0, 1.5, settings)
    truth[1] = 1.06
    slowdown = truth / np.array([np.delete(truth, each).min() for each in range(settings)])
    left_out = missed = wrong = 0
    for study in _studies(noise, truth, trials):
        ranking = Ranking.by_time(dict(enumerate(study)), CONFIDENCE, MARGIN)
        left_out += 0 not in ranking.contenders
        missed += any(
            not bound.low <= max(true, 1.0) <= max(bound.high, 1.0)
            for bound, true in ((ranking.behind[each], slowdown[each]) for each in range(1, settings))
        )
        wrong += any(slowdown[each] > 1 + MARGIN for each in ranking.as_good)
    return {
        "fastest left out": left_out / trials,
        "a bound missed": missed / trials,
        "slower by 6% called as good": wrong / trials,
    }
