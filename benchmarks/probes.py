"""Quantities of this machine, measured in interleaved rounds in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.outcome import Table, median_of
from benchmarks.turns import BLOCKS, interleaved, seconds_of

QUICK_ROUNDS = 2
"""The fewest that an interval can be made of."""


@dataclass(frozen=True)
class Probe:
    """One quantity: each call of `measure` measures it once more, in `unit`; `how` describes the work."""

    name: str
    unit: str
    measure: Callable[[], float]
    how: str = ""


def rounds(quick: bool) -> int:
    """Number of rounds behind every median."""
    return QUICK_ROUNDS if quick else BLOCKS


def in_turn(probes: Sequence[Probe], quick: bool) -> dict[str, list[float]]:
    """Measure all probes in interleaved rounds, after one that warms up."""
    return interleaved({probe.name: probe.measure for probe in probes}, rounds(quick))


def listing(title: str, probes: Sequence[Probe], measured: Mapping[str, Sequence[float]]) -> Table:
    """Make a table with a row per probe."""
    rows = [(each.name, median_of(measured[each.name]), each.unit, each.how) for each in probes]
    return Table(title, ("what", "median (95% interval)", "unit", "how"), rows)


def bytes_said(count: int) -> str:
    """Format a number of bytes in whole KiB or MiB: `4 KiB`, `16 MiB`."""
    return f"{count >> 10:,} KiB" if count < 2**20 else f"{count >> 20:,} MiB"


def seconds_per_call(
    call: Callable[[], object], quick: bool = False, finish: Callable[[], object] = lambda: None
) -> float:
    """Time as many calls in a row as take 0.1 s (`quick`: 1 ms) and return seconds per call.

    `finish` waits for the device.
    """
    calls = 1
    while (seconds := seconds_of(call, calls, finish)) < (0.001 if quick else 0.1):
        calls *= 2
    return seconds / calls
