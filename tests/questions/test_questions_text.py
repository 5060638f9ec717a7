"""Numbers as a person reads them."""

from __future__ import annotations

import pytest

from parashot.questions import text
from parashot.questions.statistics import Interval

NUMBERS = {
    0: "0",
    0.00044: "0.000440",
    1.9249: "1.92",
    19.249: "19.2",
    137_172.4: "137,172",
    1e-9: "1.0e-09",
    -0.5: "-0.500",
}
TIMES = {0.00044: "440 µs", 0.19: "190 ms", 21.5: "21.5 s", 600: "10.0 min", 137_172: "38.1 h"}


@pytest.mark.parametrize(("value", "said"), NUMBERS.items())
def test_numbers_have_three_digits(value: float, said: str) -> None:
    assert text.number(value) == said


@pytest.mark.parametrize(("value", "said"), TIMES.items())
def test_times_have_a_unit_that_suits(value: float, said: str) -> None:
    assert text.seconds(value) == said


def test_words() -> None:
    assert text.times(Interval(1.9249, 1.85, 1.98)) == "1.92× (1.85 to 1.98)"
    assert text.points(Interval(-0.0004, -0.011, 0.005)) == "+0.0 points (-1.1 to +0.5)"
    assert text.accuracy(0.4512, 0.009) == "45.1% ± 0.9" and text.accuracy(0.4512, None) == "45.1%"
    assert (text.size(3 * 2**20), text.size(5 * 2**30)) == ("3.00 MiB", "5.00 GiB")
    assert [text.listed(range(n)) for n in range(4)] == ["", "0", "0 and 1", "0, 1 and 2"]
    assert (text.counted(1, "process", "processes"), text.counted(2, "worker")) == ("1 process", "2 workers")
