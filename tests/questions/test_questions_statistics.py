"""Intervals and the equivalence test by hand, and which setting is the fastest; numbers as text.

How often the intervals cover: `python -m benchmarks coverage`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import ttest_1samp

from parashot.errors import RecordError
from parashot.questions import text
from parashot.questions.advice import Choice
from parashot.questions.statistics import (
    CONFIDENCE,
    ENOUGH_LAUNCHES,
    Interval,
    Ranking,
    equivalence,
    mean_interval,
    median_interval,
    median_of_rounds,
    paired,
    paired_ratio,
    repeated_interval,
    together,
)


@given(arrays(np.float64, st.integers(2, 15), elements=st.floats(1e-3, 1e3)))
def test_a_median_interval_surrounds_the_median_within_the_data(values: np.ndarray) -> None:
    interval = median_interval(values, CONFIDENCE)
    assert interval.value == np.median(values)
    assert values.min() <= interval.low <= interval.value <= interval.high <= values.max()
    assert interval == median_interval(values, CONFIDENCE)


def test_a_median_interval_of_few_blocks_covers_the_true_median_of_skewed_times() -> None:
    samples = np.random.default_rng(7).lognormal(sigma=0.3, size=(400, 7))  # true median 1
    hits = [i.low <= 1 <= i.high for i in (median_interval(each, CONFIDENCE) for each in samples)]
    assert 0.93 <= np.mean(hits) <= 1


def test_a_ratio_by_hand() -> None:
    """By Student's t with 2 degrees of freedom (4.3027); what slows both settings of a round cancels out."""
    slowed = np.array([1.0, 3.0, 2.0])
    found = paired_ratio(rounds(*np.exp([0.0, 0.1, 0.2]) * slowed), rounds(*slowed), CONFIDENCE)
    half = 4.3027 * 0.1 / math.sqrt(3)
    assert np.log([found.low, found.value, found.high]) == pytest.approx([0.1 - half, 0.1, 0.1 + half], 1e-4)


def test_launches_that_differ_widen_a_ratio() -> None:
    """Two launches of two rounds each: rounds of a launch agree, so the error is that of its means, 0.1."""
    one = {(launch, number): math.exp(0.2 * launch) for launch in (0, 1) for number in (0, 1)}
    found = paired_ratio(one, dict.fromkeys(one, 1.0), CONFIDENCE)
    assert np.log([found.value, found.high]) == pytest.approx([0.1, 0.1 + 12.7062 * 0.1], 1e-4)


def test_launches_that_differ_widen_a_median() -> None:
    """As wide as that of their medians, however well the rounds of each agree."""
    launches = {(launch, number): 1.0 + launch for launch in range(ENOUGH_LAUNCHES) for number in range(9)}
    found = median_of_rounds(launches, CONFIDENCE)
    assert found == median_interval([1.0 + launch for launch in range(ENOUGH_LAUNCHES)], CONFIDENCE)
    assert (found.value, found.low) == (3.0, 1.0)
    few = {place: value for place, value in launches.items() if place[0] < 2}
    assert median_of_rounds(few, CONFIDENCE) == median_interval([*few.values()], CONFIDENCE)


@given(arrays(np.float64, (ENOUGH_LAUNCHES, 3), elements=st.floats(-1, 1)), st.floats(0, 3))
def test_of_enough_launches_each_counts_by_its_median(logs: np.ndarray, further: float) -> None:
    """By SciPy's t-test of the medians, however far out the slowest round of each launch is."""
    medians = np.median(logs, axis=1)
    assume(np.ptp(medians) > 1e-6)
    logs[np.arange(len(logs)), logs.argmax(axis=1)] += further
    one = {place: math.exp(value) for place, value in np.ndenumerate(logs)}
    found = paired_ratio(one, dict.fromkeys(one, 1.0), CONFIDENCE)
    expected = ttest_1samp(medians, 0).confidence_interval(0.95)
    ends = [medians.mean(), expected.low, expected.high]
    assert np.log([found.value, found.low, found.high]) == pytest.approx(ends, abs=1e-9)


def test_launches_that_agree_by_luck_do_not_narrow_a_ratio() -> None:
    """Both have a mean of 0: then rounds count, with 3 degrees of freedom."""
    one = {(launch, number): math.exp(sign * 0.1) for launch in (0, 1) for number, sign in enumerate((1, -1))}
    found = paired_ratio(one, dict.fromkeys(one, 1.0), CONFIDENCE)
    assert math.log(found.high) == pytest.approx(3.1824 * 0.1 / math.sqrt(3), 1e-4)
    assert paired_ratio(one, one, CONFIDENCE) == Interval(1, 1, 1)


def test_independent_errors_of_a_ratio_add_up_in_their_squares() -> None:
    assert vars(Interval(2, 2, 2).widened(0.05)) == pytest.approx({"value": 2, "low": 2 / 1.05, "high": 2.1})
    wider = Interval(2, 2 / 1.03, 2 * 1.04).widened(0.05)
    ends = [math.log(wider.low / 2), math.log(wider.high / 2)]
    assert ends == pytest.approx([-math.hypot(*np.log([1.03, 1.05])), math.hypot(*np.log([1.04, 1.05]))])
    assert vars(wider.widened(0)) == pytest.approx(vars(wider))


def test_too_few_values_have_no_interval() -> None:
    with pytest.raises(RecordError, match="at least 2"):
        median_interval([1.0], CONFIDENCE)
    with pytest.raises(ValueError, match="at least 2"):
        mean_interval([1.0], 0.95)
    with pytest.raises(ValueError, match="at least 3"):
        repeated_interval([0.2, 0.4], 0.95)


def test_a_mean_interval_of_many_by_hand() -> None:
    """400 values with exactly this mean and standard deviation."""
    found = mean_interval(0.011 + 0.1 * np.tile([1.0, -1.0], 200) * math.sqrt(399 / 400), 0.95)
    assert found.value == pytest.approx(0.011)
    assert found.high - 0.011 == pytest.approx(1.959964 * 0.1 / 20) == 0.011 - found.low


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ((-0.01, 0.0, 0.01), "equivalent"),  # 90% half width 2.920 · 0.01 / √3 = 0.0169
        ((-0.012, 0.0, 0.012), "undecided"),  # 0.0202
        ((0.05, 0.06, 0.07), "different"),  # 95% half width 4.303 · 0.01 / √3 = 0.0248
        ((0.03, 0.04, 0.05), "undecided"),
    ],
)
def test_equivalence_of_a_few_repetitions(values: tuple[float, ...], verdict: str) -> None:
    for sign in (1, -1):
        assert equivalence([sign * each for each in values], 0.02, 0.95) == verdict


def test_rounds_of_both_are_paired_in_order() -> None:
    first, second = paired({2: 20.0, 0: 0.5, 1: 10.0}, {1: 1.0, 2: 2.0, 5: 5.0})
    assert first.tolist() == [10.0, 20.0] and second.tolist() == [1.0, 2.0]


def rounds(*values: float) -> dict[int, float]:
    return dict(enumerate(values))


def test_settings_against_the_fastest() -> None:
    times = {
        "slow": rounds(2.0, 2.1, 2.2, 2.0, 2.1, 2.3, 2.0),
        "fast": rounds(1.0, 1.1, 1.2, 1.0, 1.1, 1.3, 1.0),
        "near": rounds(1.01, 1.1, 1.21, 1.01, 1.1, 1.31, 1.0),
        "noisy": rounds(1.1, 1.0, 1.3, 0.9, 1.2, 1.2, 1.1),
    }
    ranking = Ranking.by_time(times, CONFIDENCE, margin=0.05)
    assert ranking.best == "fast" and [*ranking.contenders] == ["fast", "near", "noisy"]
    assert ranking.as_good == [] and ranking.possible == ["fast", "near", "noisy"]  # noisy may be faster
    assert ranking.behind["slow"].low > 1.5 and ranking.behind["fast"].value < 1
    del times["noisy"]
    assert Ranking.by_time(times, CONFIDENCE, margin=0.05).as_good == ["fast", "near"]
    alone = Ranking.by_time({"only": rounds(1.0, 2.0)}, CONFIDENCE, margin=0.05)
    assert alone.best == "only" and alone.as_good == ["only"]


def test_what_is_shown_to_be_slower_than_one_is_slower_than_the_best() -> None:
    """However little is known of a third, which may be the best."""
    slow, fast = rounds(2.6, 2.5, 2.6, 2.7, 2.5, 2.6, 2.5), rounds(1.0, 1.1, 1.0, 1.0, 1.1, 1.0, 1.0)
    times = {"slow": slow, "fast": fast, "unsteady": rounds(1.1, 2.6, 1.0, 1.2, 0.9, 2.5, 1.0)}
    ranking = Ranking.by_time(times, CONFIDENCE, margin=0.05)
    assert ranking.contenders == ["fast", "unsteady"] == ranking.possible
    assert ranking.behind["slow"].low > 2


def test_slowdowns_of_a_best_of_many_hold_together() -> None:
    """Each comparison is at the confidence that as many ask for (Bonferroni)."""
    table = np.random.default_rng(3).lognormal(size=(6, 15))
    ranking = Ranking.by_time(
        {number: rounds(*row) for number, row in enumerate(table)}, CONFIDENCE, margin=0.05
    )
    assert together(CONFIDENCE, 5) == pytest.approx(0.99)
    wide = [
        paired_ratio(rounds(*table[1]), rounds(*each), together(CONFIDENCE, 5))
        for each in np.delete(table, 1, 0)
    ]
    assert len(ranking.contenders) == 6
    assert ranking.behind[1].high == pytest.approx(max(each.high for each in wide))
    assert ranking.behind[1].low == pytest.approx(max(each.low for each in wide))


def test_a_choice_is_decided_once_no_simpler_one_may_be_as_good() -> None:
    behind = {"a": Interval(0.9, 0.85, 0.95), "b": Interval(1.1, 1.0, 1.2), "c": Interval(2.0, 1.9, 2.1)}
    ranking = Ranking(behind, {"a": [], "b": [], "c": ["a", "b"]}, even=1, margin=0.05)
    for order in permutations("abc"):
        choice = Choice.of(ranking, "c", list(order))
        assert (choice.choice, choice.decided) == ("a", order.index("a") < order.index("b"))
    assert Choice.of(ranking, "c").decided and choice.others == ["b"]


@pytest.mark.parametrize(
    ("usual", "better", "choice"),
    [
        ("b", [], "b"),  # which nothing was shown to be better than
        ("c", ["a", "b"], "a"),
        ("c", ["b"], "b"),  # the only one that was shown to be better
        ("c", [], "a"),  # the best, for that may not be as good
        ("not measured", [], "a"),
    ],
)
def test_where_nothing_is_decided_the_usual_one_stays_unless_another_is_shown_to_be_better(
    usual: str, better: list[str], choice: str
) -> None:
    behind = {"a": Interval(0.9, 0.8, 1.1), "b": Interval(1.1, 0.9, 1.2), "c": Interval(1.4, 1.1, 1.6)}
    shown: dict[str, list[str]] = {"a": [], "b": [], "c": []}
    ranking = Ranking(behind, {**shown, usual: better}, even=1, margin=0.05)
    found = Choice.of(ranking, usual, ["b", "a"])
    assert (found.choice, found.decided) == (choice, False)
    handed_in = Choice.of(replace(ranking, better=shown), usual, ["b", "a"], better)
    assert handed_in.choice == choice, "shown to be better by other means than the ranking"


def test_where_nothing_is_decided_a_simpler_one_within_the_margin_is_taken() -> None:
    """Of those that are shown to be better than the usual one."""
    # d is as simple as can be, and not shown to be better than any
    behind = {"c": Interval(1.4, 1.3, 1.6), "d": Interval(1.0, 0.7, 1.5)}
    for measured, choice in ((1.04, "b"), (1.06, "a")):
        near = {"a": Interval(1 / measured, 0.8, 1.1), "b": Interval(measured, 0.9, 1.2)}
        better: dict[str, list[str]] = {"a": [], "b": [], "c": ["a", "b"], "d": []}
        found = Choice.of(Ranking(near | behind, better, even=1, margin=0.05), "c", ["d", "b", "a"])
        assert (found.choice, found.decided) == (choice, False)


NUMBERS = {0: "0", 0.00044: "0.000440", 1.9249: "1.92", 137_172.4: "137,172", 1e-9: "1.0e-09", -0.5: "-0.500"}
TIMES = {0.00044: "440 µs", 0.19: "190 ms", 21.5: "21.5 s", 600: "10.0 min", 137_172: "38.1 h"}


def test_numbers_have_three_digits_and_a_unit_that_suits() -> None:
    assert {value: text.number(value) for value in NUMBERS} == NUMBERS
    assert {value: text.seconds(value) for value in TIMES} == TIMES
    assert text.times(Interval(1.9249, 1.85, 1.98)) == "1.92× (1.85 to 1.98)"
    assert text.points(Interval(-0.0004, -0.011, 0.005)) == "+0.0 points (-1.1 to +0.5)"
    assert text.accuracy(0.4512, 0.009) == "45.1% ± 0.9" and text.accuracy(0.4512, None) == "45.1%"
    assert (text.size(3 * 2**20), text.size(5 * 2**30)) == ("3.00 MiB", "5.00 GiB")
    assert [text.listed(range(n)) for n in range(4)] == ["", "0", "0 and 1", "0, 1 and 2"]
    assert (text.counted(1, "process", "processes"), text.counted(2, "worker")) == ("1 process", "2 workers")
