"""Growth over work: memory, descriptors, threads, processes and files, over steps and loader restarts.

A whole training, with augmentation, validations and saved states, by `serial` in one process and by `ddp` in
two ranks with a loader worker each; and a loader whose two workers are started again and again, half the
times given up before their end. All processes of the work are looked at from outside, and their memory is
what has no file behind it. The first quarter of the looks warms up. `more` is what was added from the second
quarter to the last, by their means or by the slope (Theil and Sen: the median over all pairs of looks),
whichever is more; what is within the bound is flat. Of all that is counted the bound is half a one. Memory
may grow a little: a training writes down four numbers of each step, 128 bytes in each rank.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.checkout import ROOT, environment, scratch_folder
from benchmarks.footprint import QUANTITIES, Footprint, Tree
from benchmarks.leaks_work import DDP, PROGRAM, RESTARTS, SEEN, SERIAL, newest_step, prepare
from benchmarks.outcome import Cell, Outcome, Table
from parashot.errors import DeviceError

PER = 1_000
"""Units of work that a slope is given for."""

LEAST_LOOKS = 8
"""Fewer make no quarters."""

_HALF = 0.5
"""Of what is counted, one more is found."""

_LEFT_OUT = 0.1
"""Share of a quarter's looks, at either end of their order, that its mean leaves out."""

_FULL = {"steps": 10_000, "restarts": 200}
_QUICK = {"steps": 200, "restarts": 12}
_POLL_SECONDS = 0.02
_SAVING_SECONDS = 0.05
"""Until a file that has its name is closed, and its folder too."""

_PATIENCE_SECONDS = 10.0
"""For what ends a moment after its parent has."""


@dataclass(frozen=True)
class Work:
    """Work to watch, the unit it is counted in, and the memory that `PER` units may add."""

    name: str
    title: str
    unit: str
    most_memory_mb: float

    def bound(self, quantity: str, distance: float) -> float:
        """Most that a quantity may grow over `distance` units."""
        return self.most_memory_mb * distance / PER if quantity == "memory_mb" else _HALF


WORKS = (
    Work(SERIAL, "training, serial", "steps", most_memory_mb=1.0),
    Work(DDP, "training, ddp, 2 ranks", "steps", most_memory_mb=2.0),
    Work(RESTARTS, "loader, 2 workers", "restarts", most_memory_mb=20.0),
)


def run(quick: bool) -> Outcome:
    """Do and watch every work; `quick`: a little of each, too little to judge memory by."""
    counts = _QUICK if quick else _FULL
    seen: dict[str, Watched] = {}
    for work in WORKS:
        print(f"  {work.title}: {counts[work.unit]:,} {work.unit}", file=sys.stderr)
        with scratch_folder() as folder:
            prepare(folder)
            command = [sys.executable, "-c", PROGRAM, str(folder), work.name, str(counts[work.unit])]
            seen[work.name] = watch(command, folder)
    grown = {work: growing(work, seen[work.name]) for work in WORKS}
    flat = [work for work, quantities in grown.items() if not quantities]
    short = [f"{work.title}: {each}" for work, quantities in grown.items() for each in quantities]
    return Outcome(
        "leaks",
        [*(_growth_table(work, seen[work.name], counts) for work in WORKS), _left_table(seen)],
        raw={name: each.raw() for name, each in seen.items()},
        settings={
            "quick": quick,
            "counts": counts,
            "without_growth": {
                unit: sum(count for work in flat if work.unit == unit) for unit, count in counts.items()
            },
            "short": [] if quick else short,
        },
    )


# --- watching -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Watched:
    """Looks after `at` units of work, and what was `left` when all was over."""

    left: Footprint
    at: list[int] = field(default_factory=list)
    looks: list[Footprint] = field(default_factory=list)

    def series(self, quantity: str) -> list[float]:
        """One field of the footprints."""
        return [getattr(each, quantity) for each in self.looks]

    def raw(self) -> dict[str, list[float]]:
        """All fields, by name."""
        return {"at": list(self.at), **{name: self.series(name) for name in QUANTITIES}}


def watch(command: Sequence[str], folder: Path) -> Watched:
    """Run `command` in the checkout and look at its processes whenever it has saved a step below `folder`.

    The number of the last step looked at is written to the file `SEEN` of `folder`. Raises `DeviceError`
    where the command fails.
    """
    at: list[int] = []
    looks: list[Footprint] = []
    # folders with short names: paths of sockets lie in them
    with tempfile.TemporaryDirectory(prefix="leaks-") as temporary, tempfile.TemporaryDirectory() as cache:
        variables = {**environment(), "TMPDIR": temporary, "TORCHINDUCTOR_CACHE_DIR": cache}
        with subprocess.Popen(command, cwd=ROOT, env=variables, stdin=subprocess.DEVNULL) as process:
            tree = Tree(process.pid, Path(temporary))
            try:
                while process.poll() is None:
                    time.sleep(_POLL_SECONDS)
                    step = newest_step(folder)
                    if step > (at[-1] if at else 0):
                        time.sleep(_SAVING_SECONDS)
                        at.append(step)
                        looks.append(tree.look())
                        (folder / SEEN).write_text(str(step))
            except BaseException:
                process.terminate()
                raise
        if process.returncode:
            raise DeviceError(f"{' '.join(command)} ended with exit code {process.returncode}")
        end = time.monotonic() + _PATIENCE_SECONDS
        while any(asdict(left := tree.look()).values()) and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)
        return Watched(left, at, looks)


# --- growth ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Growth:
    """Means of the second and last quarter of the looks, the work between them, and the slope per unit."""

    early: float
    late: float
    distance: float
    slope: float

    @classmethod
    def of(cls, at: Sequence[float], values: Sequence[float]) -> Growth:
        """Growth of `values` seen after `at` units of work. Raises `ValueError` for under `LEAST_LOOKS`."""
        if len(at) < LEAST_LOOKS:
            raise ValueError(f"{len(at)} looks; at least {LEAST_LOOKS} are needed")
        x, y = np.asarray(at, dtype=np.float64), np.asarray(values, dtype=np.float64)
        quarter = len(x) // 4
        second, last = slice(quarter, 2 * quarter), slice(-quarter, None)
        x_late, y_late = x[quarter:], y[quarter:]
        i, j = np.triu_indices(len(x_late), 1)
        slope = float(np.median((y_late[j] - y_late[i]) / (x_late[j] - x_late[i])))
        return cls(
            _trimmed_mean(y[second]), _trimmed_mean(y[last]), float(x[last].mean() - x[second].mean()), slope
        )

    @property
    def more(self) -> float:
        """The larger of both estimates of what was added from the second quarter to the last."""
        return max(self.late - self.early, self.slope * self.distance)


def _trimmed_mean(values: NDArray[np.float64]) -> float:
    out = int(_LEFT_OUT * len(values))
    return float(np.sort(values)[out : len(values) - out].mean())


def growing(work: Work, seen: Watched) -> list[str]:
    """Return quantities, in words, that grew by more than their bound, or of which something was left."""
    return [
        words
        for quantity, words in QUANTITIES.items()
        if getattr(seen.left, quantity)
        or not _is_flat(work, quantity, Growth.of(seen.at, seen.series(quantity)))
    ]


def _is_flat(work: Work, quantity: str, growth: Growth) -> bool:
    return growth.more <= work.bound(quantity, growth.distance)


def _growth_table(work: Work, seen: Watched, counts: Mapping[str, int]) -> Table:
    rows: list[list[Cell]] = []
    for quantity, words in QUANTITIES.items():
        growth = Growth.of(seen.at, seen.series(quantity))
        verdict = "flat" if _is_flat(work, quantity, growth) else "grows"
        bound = work.bound(quantity, growth.distance)
        rows.append([words, growth.early, growth.late, PER * growth.slope, growth.more, bound, verdict])
    slope = f"slope per {PER:,} {work.unit}"
    columns = ("quantity", "second quarter", "last quarter", slope, "more", "at most", "verdict")
    return Table(f"{work.title}: {counts[work.unit]:,} {work.unit}, {len(seen.at)} looks", columns, rows)


def _left_table(seen: Mapping[str, Watched]) -> Table:
    rows = [[work.title, *(getattr(seen[work.name].left, each) for each in QUANTITIES)] for work in WORKS]
    return Table("What is left when all is over", ("work", *QUANTITIES.values()), rows)
