"""What grows with work: memory, descriptors, threads, processes and files, over steps and loader restarts.

A whole training, with augmentation, validations and saved states, by `serial` in one process and by `ddp` in
two ranks with a loader worker each; and a loader whose two workers are started again and again, half the
times given up before their end. All processes of the work are looked at from outside, and their memory is
what has no file behind it. The first quarter of the looks warms up. `more` is what was added from the second
quarter to the last, by their means or by the slope (Theil and Sen: the median over all pairs of looks),
whichever is more; what is within the bound is flat. Of all that is counted the bound is half a one. Memory
may grow a little: a training writes down four numbers of each step, 128 bytes in each rank.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.footprint import QUANTITIES
from benchmarks.growth import Growth
from benchmarks.leaks_watch import Watched, watch, when_saved, when_told
from benchmarks.leaks_work import DDP, PROGRAM, RESTARTS, SERIAL, prepare, scratch
from benchmarks.outcome import Cell, Outcome, Table
from benchmarks.scratch import scratch_folder

PER = 1_000
"""Units of work that a slope is told for."""

_HALF = 0.5
"""Of what is counted, one more is found."""


@dataclass(frozen=True)
class Work:
    """What is done, in which unit it is counted, and how much memory `PER` units may add."""

    name: str
    title: str
    unit: str
    most_memory_mb: float

    def bound(self, quantity: str, distance: float) -> float:
        """How much a quantity may grow over `distance` units."""
        return self.most_memory_mb * distance / PER if quantity == "memory_mb" else _HALF


WORKS = (
    Work(SERIAL, "training, serial", "steps", most_memory_mb=1.0),
    Work(DDP, "training, ddp, 2 ranks", "steps", most_memory_mb=2.0),
    Work(RESTARTS, "loader, 2 workers", "restarts", most_memory_mb=20.0),
)
_FLAT = "flat"
_FULL = {"steps": 10_000, "restarts": 200}
_QUICK = {"steps": 200, "restarts": 12}


def run(quick: bool) -> Outcome:
    """Do and watch every work; `quick`: a little of each, too little to judge memory by."""
    counts = _QUICK if quick else _FULL
    seen = {work.name: _watch(work, counts[work.unit]) for work in WORKS}
    grown = [f"{work.title}: {each}" for work in WORKS for each in growing(work, seen[work.name])]
    flat = [work for work in WORKS if not growing(work, seen[work.name])]
    return Outcome(
        "leaks",
        [*(_growth_table(work, seen[work.name], counts) for work in WORKS), _left_table(seen)],
        raw={name: each.raw() for name, each in seen.items()},
        settings={
            "quick": quick,
            "counts": counts,
            "without_growth": {unit: _total(flat, counts, unit) for unit in counts},
            "short": [] if quick else grown,
        },
    )


def growing(work: Work, seen: Watched) -> list[str]:
    """Quantities, in words, that grew by more than their bound, or of which something was left."""
    return [
        words
        for quantity, words in QUANTITIES.items()
        if getattr(seen.left, quantity) or _verdict(work, seen, quantity) != _FLAT
    ]


def _watch(work: Work, count: int) -> Watched:
    print(f"  {work.title}: {count:,} {work.unit}", file=sys.stderr)
    with scratch_folder() as folder:
        prepare(folder)
        command = [sys.executable, "-c", PROGRAM, str(folder), work.name, str(count)]
        return watch(command, when_told if work.name == RESTARTS else when_saved(scratch(folder)))


def _verdict(work: Work, seen: Watched, quantity: str) -> str:
    growth = _growth(seen, quantity)
    return _FLAT if growth.more <= work.bound(quantity, growth.distance) else "grows"


def _growth(seen: Watched, quantity: str) -> Growth:
    return Growth.of(seen.at, seen.series(quantity))


def _growth_table(work: Work, seen: Watched, counts: Mapping[str, int]) -> Table:
    rows: list[list[Cell]] = []
    for quantity, words in QUANTITIES.items():
        growth = _growth(seen, quantity)
        bound = work.bound(quantity, growth.distance)
        cells = (growth.early, growth.late, PER * growth.slope, growth.more, bound)
        rows.append([words, *cells, _verdict(work, seen, quantity)])
    slope = f"slope per {PER:,} {work.unit}"
    columns = ("quantity", "second quarter", "last quarter", slope, "more", "at most", "verdict")
    return Table(f"{work.title}: {counts[work.unit]:,} {work.unit}, {len(seen.at)} looks", columns, rows)


def _left_table(seen: Mapping[str, Watched]) -> Table:
    rows = [[work.title, *(getattr(seen[work.name].left, each) for each in QUANTITIES)] for work in WORKS]
    return Table("What is left when all is over", ("work", *QUANTITIES.values()), rows)


def _total(works: Sequence[Work], counts: Mapping[str, int], unit: str) -> int:
    return sum(counts[unit] for work in works if work.unit == unit)
