"""The search of `parashot measure` against the full grid of ways, on two of the examples.

All ways are timed before and after ten searches. Of each search: how much longer than the fastest way its
first choice takes, and the fastest of its finalists, between which a measurement decides.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from benchmarks.checkout import ROOT
from benchmarks.outcome import Cell, Outcome, Table
from parashot.parallel.launch import launch_apart
from parashot.params import ParallelParams
from parashot.progress import passing
from parashot.questions.own.candidates import candidates
from parashot.questions.own.checks import check_own
from parashot.questions.own.measure import FINALISTS, OwnTrainings, own_parallel, own_placement
from parashot.questions.own.records import OwnWay
from parashot.questions.own.search import Found, search_rank
from parashot.questions.ways.measure import for_ways, time_ways
from parashot.questions.ways.rows import step_seconds_by_way
from parashot.tasks.own import own_task

EXAMPLES = ("image_classifier", "jpeg_classifier")
SEARCHES, ROUNDS, SECONDS = 10, 7, 84.0
"""Searches, rounds of all ways before and after them, and what a search may take: 35% of 4 minutes."""

WITHIN = 0.05
"""A choice that takes at most so much longer than the fastest way is as good."""


@dataclass(frozen=True)
class Grid:
    """All ways to train an example."""

    trainings: OwnTrainings
    parallel: ParallelParams
    ways: tuple[OwnWay, ...]

    def search(self, seconds: float) -> Found:
        """Search the ways once."""
        placement, processes = for_ways(self.ways, own_placement(self.parallel))
        with tempfile.TemporaryDirectory() as folder:
            journal = Path(folder) / "search.csv"
            found = launch_apart(
                search_rank, placement, processes, self.trainings, self.ways, FINALISTS, seconds, journal
            )
        assert found is not None
        return found

    def time(self) -> dict[str, list[float]]:
        """Seconds per step of every way, by its name."""
        bench = replace(self.parallel.bench, launches=2, blocks=ROUNDS)
        placement = own_placement(self.parallel)
        blocks = time_ways(self.trainings, self.ways, placement, bench, "the grid")
        assert blocks is not None
        return {way: list(series.values()) for way, series in step_seconds_by_way(blocks).items()}


def run(quick: bool) -> Outcome:
    """Search the ways of both examples again and again, and time the grid around it."""
    rows, short = [], False
    for name in ("tabular_mlp",) if quick else EXAMPLES:
        row, good = _example(ROOT / "examples" / f"{name}.py", quick)
        rows.append([name, *row])
        short |= not good
    columns = ["example", "ways", "slowest way", "first choice, worst", "best finalist, worst", "within 5%"]
    table = Table("Seconds per step over those of the fastest way", columns, rows)
    return Outcome("search", [table], settings={"searches": 1 if quick else SEARCHES, "short": short})


def _example(file: Path, quick: bool) -> tuple[list[Cell], bool]:
    grid = grid_of(file)
    if quick:
        grid = replace(grid, ways=grid.ways[:3])
    searches = 1 if quick else SEARCHES
    grid.search(1 if quick else SECONDS)  # warms up, and is not counted
    before = grid.time()
    found = []
    for number in range(searches):
        passing("%s: search %d of %d", file.stem, number + 1, searches)
        found.append(grid.search(1 if quick else SECONDS))
    after = grid.time()
    seconds = {way: median([*before[way], *after[way]]) for way in before}
    best = min(seconds.values())
    chosen = [seconds[each.best[0].way] / best for each in found]
    finalists = [min(seconds[way.way] for way in each.best) / best for each in found]
    good = sum(each <= 1 + WITHIN for each in finalists)
    row: list[Cell] = [len(grid.ways), max(seconds.values()) / best, max(chosen), max(finalists)]
    row.append(f"{good} of {len(found)}")
    return row, good == len(found) or quick


def grid_of(file: Path) -> Grid:
    """The ways to train what `file` describes that pass the checks of a measurement."""
    task, parallel = own_task(file), own_parallel()
    listed = candidates(task, parallel)
    checked = check_own(task, parallel, listed.ways)
    failing = {each.what for each in checked.skipped}
    ways = tuple(each for each in listed.ways if each.strategy not in failing)
    return Grid(OwnTrainings(task, checked.parallel), checked.parallel, ways)
