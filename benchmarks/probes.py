"""Quantities that are measured one after the other, round after round, in this process: A B C A B C ...

For quantities of their own. What is compared, and could disturb each other, runs as the sides of `turns`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.outcome import RESAMPLING, Cell, Table
from benchmarks.turns import BLOCKS
from parashot.questions.statistics import median_interval

Series = Mapping[str, Sequence[float]]
"""What every round measured, by name."""

QUICK_ROUNDS = 2
"""The fewest that an interval can be made of."""

_QUICK_SECONDS = 0.001


@dataclass(frozen=True)
class Probe:
    """One quantity: each call of `measure` measures it once more, in `unit`; `how` says what was done."""

    name: str
    unit: str
    measure: Callable[[], float]
    how: str = ""


@dataclass(frozen=True)
class Section:
    """Tables of one kind of measurement, and what every round measured."""

    tables: Sequence[Table]
    raw: Series = field(default_factory=dict)


def rounds(quick: bool) -> int:
    """Rounds behind every median."""
    return QUICK_ROUNDS if quick else BLOCKS


def block_seconds(quick: bool, seconds: float) -> float:
    """How long the calls behind one number go on: `seconds`, or next to nothing."""
    return _QUICK_SECONDS if quick else seconds


def in_turn(probes: Sequence[Probe], quick: bool) -> dict[str, list[float]]:
    """What each probe measured by name, item i of all from round i; unless `quick`, one round warms up."""
    measured: dict[str, list[float]] = {probe.name: [] for probe in probes}
    count = rounds(quick)
    for number in range(0 if quick else -1, count):
        for probe in probes:
            value = probe.measure()
            if number >= 0:
                measured[probe.name].append(value)
        print(f"\r  round {number + 1} of {count} ", end="", file=sys.stderr, flush=True)
    print("\r" + " " * 30, end="\r", file=sys.stderr, flush=True)
    return measured


def listing(title: str, probes: Sequence[Probe], measured: Series) -> Table:
    """A row per probe: what, how much of which unit, and how it was measured."""
    rows: list[list[Cell]] = [
        [probe.name, median_interval(measured[probe.name], RESAMPLING), probe.unit, probe.how]
        for probe in probes
    ]
    return Table(title, ("what", "median (95% interval)", "unit", "how"), rows)


def bytes_said(count: int) -> str:
    """Say a number of bytes in whole KiB or MiB: `4 KiB`, `16 MiB`."""
    return f"{count >> 10:,} KiB" if count < 2**20 else f"{count >> 20:,} MiB"


def seconds_per_call(
    call: Callable[[], object], at_least: float, finish: Callable[[], object] = lambda: None
) -> float:
    """Seconds of one of as many calls in a row as take `at_least` seconds; `finish` waits for the device."""
    calls = 1
    while True:
        finish()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        finish()
        seconds = time.perf_counter() - begin
        if seconds >= at_least:
            return seconds / calls
        calls *= 2
