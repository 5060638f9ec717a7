"""Numbers as a person reads them: the one place that rounds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parashot.questions.statistics import Interval


def number(value: float) -> str:
    """Three significant digits: `0.00044`, `1.92`, `137,172`."""
    if value == 0:
        return "0"
    if abs(value) < 1e-5:
        return f"{value:.1e}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def ratio(value: float) -> str:
    """Say a ratio: `0.042`, `0.68`, `1.92`, `137`."""
    if abs(value) < 0.1:
        return f"{value:.2g}"
    return f"{value:.2f}" if abs(value) < 100 else number(value)


def times(interval: Interval) -> str:
    """Say a ratio with its interval: `1.92× (1.85 to 1.98)`."""
    return f"{ratio(interval.value)}× ({ratio(interval.low)} to {ratio(interval.high)})"


def seconds(value: float) -> str:
    """Say a time in the unit that suits it."""
    if abs(value) < 1e-3:
        return f"{number(value * 1e6)} µs"
    if abs(value) < 1:
        return f"{number(value * 1e3)} ms"
    if abs(value) < 300:
        return f"{number(value)} s"
    return f"{number(value / 60)} min" if abs(value) < 3 * 3600 else f"{number(value / 3600)} h"


def size(value: float) -> str:
    """Say a number of bytes in MiB or GiB."""
    mib = value / 2**20
    return f"{number(mib)} MiB" if abs(mib) < 1024 else f"{number(mib / 1024)} GiB"


def percent(share: float, decimals: int = 1) -> str:
    """Say a share: `45.1%`."""
    return f"{100 * share:.{decimals}f}%"


def accuracy(value: float, ci95: float | None) -> str:
    """Say an accuracy with the half width of its interval: `45.1% ± 0.9`."""
    return percent(value) if ci95 is None else f"{percent(value)} ± {100 * ci95:.1f}"


def points(interval: Interval) -> str:
    """Say a difference of two accuracies: `-0.3 points (-1.1 to +0.5)`."""
    value, low, high = (round(100 * each, 1) + 0.0 for each in (interval.value, interval.low, interval.high))
    return f"{value:+.1f} points ({low:+.1f} to {high:+.1f})"


def within(interval: Interval, noun: str) -> str:
    """Say a number of something with its interval: `8.33 episodes (5.89 to 11.8)`."""
    return f"{number(interval.value)} {noun} ({number(interval.low)} to {number(interval.high)})"


def listed(items: Iterable[object]) -> str:
    """Join words: `1, 2 and 4`."""
    words = [str(item) for item in items]
    return " and ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else "".join(words)


def counted(count: int, singular: str, plural: str = "") -> str:
    """Say a count with its noun: `1 worker`, `2 workers`."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"


def as_sentences(phrases: Iterable[str]) -> str:
    """Make a sentence of each phrase, in a row."""
    return " ".join(f"{each[0].upper()}{each[1:]}." for each in phrases)
