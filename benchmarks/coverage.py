"""How often the project's intervals cover, and its choices err, on simulated times whose truth is known.

A block's time is the setting's true time, times noise as timings are seen to have it:

independent: a standard deviation of 6% in each block
drift:       the machine's speed wanders from block to block (AR(1) of 0.9, 10%), beside 6%
outliers:    every tenth block takes half as long again, beside 6%
launch:      each of 3 launches of the processes makes each setting 4% faster or slower, beside 6%

The settings of a round run in random order. Rows miss where coverage lies more than 3 points below nominal,
or errors of a family more than 3 points above what is allowed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.outcome import Outcome, Table
from parashot.questions.statistics import Ranking, Resampling, Rounds, median_interval, paired_ratio

Floats = NDArray[np.float64]
Noise = Callable[["Design", np.random.Generator], Floats]
"""Logarithms of noise [rounds, settings]."""

NOISE, DRIFT, STICKY, OUTLIERS, OUTLIER, LAUNCH, LAUNCHES = 0.06, 0.1, 0.9, 0.1, 0.5, 0.04, 3
MARGIN, TOLERANCE = 0.05, 0.03
RESAMPLING = Resampling(resamples=500)


@dataclass(frozen=True)
class Design:
    """A comparison: settings, and rounds of all launches together."""

    settings: int
    rounds: int


def independent(design: Design, generator: np.random.Generator) -> Floats:
    """Noise of each block by itself."""
    return generator.normal(0, NOISE, (design.rounds, design.settings))


def drift(design: Design, generator: np.random.Generator) -> Floats:
    """Speed that wanders from block to block, whichever setting runs."""
    blocks = design.rounds * design.settings
    wander = np.empty(blocks)
    wander[0] = generator.normal(0, DRIFT)
    for block in range(1, blocks):
        wander[block] = STICKY * wander[block - 1] + generator.normal(0, DRIFT * np.sqrt(1 - STICKY**2))
    order = np.argsort(generator.random((design.rounds, design.settings)), axis=1)
    placed: Floats = np.empty((design.rounds, design.settings))
    np.put_along_axis(placed, order, wander.reshape(design.rounds, design.settings), axis=1)
    placed += independent(design, generator)
    return placed


def outliers(design: Design, generator: np.random.Generator) -> Floats:
    """Blocks that something else has slowed."""
    hit = generator.random((design.rounds, design.settings)) < OUTLIERS
    return independent(design, generator) + math.log1p(OUTLIER) * hit.astype(np.float64)


def launch(design: Design, generator: np.random.Generator) -> Floats:
    """An effect of each launch on each setting."""
    effects = generator.normal(0, LAUNCH, (LAUNCHES, design.settings))
    rounds = np.arange(design.rounds) * LAUNCHES // design.rounds
    return effects[rounds] + independent(design, generator)


MODELS: Mapping[str, Noise] = {
    "independent": independent,
    "drift": drift,
    "outliers": outliers,
    "launch": launch,
}


def run(quick: bool) -> Outcome:
    """Simulate every procedure under every kind of noise."""
    trials = 40 if quick else 1000
    intervals = [_interval_row(name, noise, trials) for name, noise in MODELS.items()]
    families = [
        _family_row(name, noise, settings, trials)
        for settings in (3, 5, 11)
        for name, noise in MODELS.items()
    ]
    tables = [
        Table(
            "Coverage of 95% intervals, 9 rounds",
            ["noise", "median of one setting", "ratio of two settings"],
            intervals,
        ),
        Table(
            "Best of several, 9 rounds, errors of the family; 5% are allowed",
            ["noise", "settings", "fastest left out", "a bound missed", "slower by 6% called as good"],
            families,
        ),
    ]
    return Outcome("coverage", tables, settings={"trials": trials, "margin": MARGIN})


def _tables(noise: Noise, truth: Floats, trials: int, rounds: int = 9) -> Iterator[list[Rounds]]:
    """Simulated studies: times of each setting by round."""
    generator = np.random.default_rng(0)
    for _ in range(trials):
        times = truth * np.exp(noise(Design(len(truth), rounds), generator))
        yield [
            {_round(each, rounds): value for each, value in enumerate(column)} for column in times.T.tolist()
        ]


def _round(number: int, rounds: int) -> tuple[int, int]:
    """Launch and round."""
    return number * LAUNCHES // rounds, number


def _interval_row(name: str, noise: Noise, trials: int) -> list[str | float]:
    one = two = 0
    for first, second in _tables(noise, np.array([1.0, 1.2]), trials):
        median, ratio = (
            median_interval([*first.values()], RESAMPLING),
            paired_ratio(second, first, RESAMPLING),
        )
        one += median.low <= 1 <= median.high
        two += ratio.low <= 1.2 <= ratio.high
    return [name, one / trials, two / trials]


def _family_row(name: str, noise: Noise, settings: int, trials: int) -> list[str | float]:
    """The fastest, one slower by 6%, and others up to half as slow again."""
    truth = np.linspace(1.0, 1.5, settings)
    truth[1] = 1.06
    slowdown = truth / np.array([np.delete(truth, each).min() for each in range(settings)])
    left_out = missed = wrong = 0
    for study in _tables(noise, truth, trials):
        ranking = Ranking.by_time(dict(enumerate(study)), RESAMPLING, MARGIN)
        left_out += 0 not in ranking.contenders
        bounds = [ranking.behind[each] for each in range(settings)]
        missed += any(
            not bound.low <= max(true, 1.0) <= max(bound.high, 1.0)
            for bound, true in zip(bounds[1:], slowdown[1:], strict=True)
        )
        wrong += any(slowdown[each] > 1 + MARGIN for each in ranking.as_good)
    return [name, settings, left_out / trials, missed / trials, wrong / trials]
