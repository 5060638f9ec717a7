"""Measure which way to train is fastest: a search, then the best ways against the default one."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from parashot.parallel.context import resolve_placement
from parashot.parallel.launch import launch
from parashot.parallel.strategy import StepOptions
from parashot.params import ParallelParams, StrategyBenchParams
from parashot.parsing import parse, read_yaml
from parashot.progress import span
from parashot.questions.own.candidates import candidates
from parashot.questions.own.checks import check_own
from parashot.questions.own.records import PLAIN, OwnResults
from parashot.questions.own.search import Found, Search, better_half, search_rank, steps_of_block
from parashot.questions.ways.measure import Training, for_ways, time_ways
from parashot.questions.ways.records import Way, WayBlock
from parashot.records import read_rows
from parashot.tasks.own import PREFETCH, OwnTask, own_task

log = logging.getLogger(__name__)

FINALISTS = 3
SEARCH_SHARE = 0.5
"""Share of the budget that the search may take."""

LEAST_ROUNDS, MOST_ROUNDS = 8, 24


@dataclass(frozen=True)
class OwnTrainings:
    """The training of the user's file, in each way."""

    task: OwnTask
    parallel: ParallelParams

    def __call__(self, way: Way) -> Training:
        """Return the task with the workers of a way."""
        options = StepOptions(bfloat16=way.precision == "bf16", compile=way.compile)
        return Training(
            replace(self.task, workers=way.workers), options, self.parallel, PREFETCH * way.workers
        )


def measure_own(file: Path, budget_seconds: float) -> OwnResults:
    """Find the fastest way to train what `file` describes, in about `budget_seconds`.

    Where the user stops it, what has been measured is returned. Raises `UsageError` for a file that does not
    describe a training, `DeviceError` where it fails in a rank.
    """
    ends = monotonic() + budget_seconds
    task, parallel = own_task(file), own_parallel()
    listed = candidates(task, parallel)
    ways = tuple(listed.ways)
    log.info(
        "%s: %d ways to train, at most %s to search them, then the best %d against the default: %s in all",
        file.name,
        len(ways),
        span(SEARCH_SHARE * budget_seconds),
        FINALISTS,
        span(budget_seconds),
    )
    checked = check_own(task, parallel, ways)
    with TemporaryDirectory(prefix="parashot-measure-") as name:
        search, finals, stopped = Path(name) / "search.csv", Path(name) / "finals.csv", False
        try:
            _measure(OwnTrainings(task, checked.parallel), ways, ends, search, finals)
        except KeyboardInterrupt:
            stopped = True
        timed = (_blocks(search), _blocks(finals))
    return OwnResults(ways, tuple(listed.skipped), *timed, stopped, checked.gradients, checked.warnings)


def _measure(trainings: OwnTrainings, ways: tuple[Way, ...], ends: float, search: Path, finals: Path) -> None:
    """Search, then time the finalists until about `ends`; blocks go to the files `search` and `finals`."""
    placement, processes = for_ways(ways, resolve_placement(trainings.parallel))
    plan = Search(ways, FINALISTS, SEARCH_SHARE * (ends - monotonic()), search)
    found = launch(search_rank, placement, processes, trainings, plan)
    assert found is not None  # this is no rank of torchrun
    alone = [each for each in ways if each.replicas == 1 and each.way != PLAIN]
    simple = better_half(alone, found.blocks, 1)[:1]  # what needs no second process shall have its chance
    finalists = tuple(dict.fromkeys((ways[0], *simple, *found.best)))
    bench = _bench(trainings.parallel, found, finalists, ends - monotonic())
    time_ways(trainings, finalists, placement, bench, "finals", finals)


def _blocks(journal: Path) -> tuple[WayBlock, ...]:
    return tuple(read_rows(WayBlock, journal)) if journal.exists() else ()


def own_parallel() -> ParallelParams:
    """How strategies train a user's file."""
    return parse(ParallelParams, read_yaml(Path(__file__).with_name("settings.yaml")), "parallel")


def _bench(
    parallel: ParallelParams, found: Found, finalists: Sequence[Way], seconds: float
) -> StrategyBenchParams:
    """Rounds of the finals: as many as there is time for, of blocks long enough for the fastest way."""
    names = {each.way for each in finalists}
    fastest = min(each.seconds / each.steps for each in found.blocks if each.way in names)
    rounds = int(seconds / (found.block_seconds * len(finalists)))
    blocks = max(LEAST_ROUNDS, min(MOST_ROUNDS, rounds))
    return replace(parallel.bench, blocks=blocks, steps=steps_of_block(fastest))
