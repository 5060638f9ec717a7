"""Measure which way to train is fastest: search, refine, then the best ways against the default one.

Then, in the way that is recommended: where a step's time goes, and larger batches.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, process_time

from parashot.allocator import why_nothing_is_kept
from parashot.errors import DeviceError, ParashotError, TaskError
from parashot.hardware import has_nvidia_driver
from parashot.parallel.context import Placement, resolve_placement
from parashot.parallel.launch import launch_apart
from parashot.parallel.strategy import StepOptions
from parashot.params import ParallelParams, StrategyBenchParams
from parashot.parsing import parse, read_yaml
from parashot.progress import span
from parashot.questions.own.advice import advise_own
from parashot.questions.own.candidates import candidates, refined, refinements, renamed
from parashot.questions.own.checks import check_own
from parashot.questions.own.closer import measure_sizes, parts_rank
from parashot.questions.own.records import PLAIN, OwnResults, OwnWay, SizeRow, StepParts
from parashot.questions.own.search import READY_SHARE, Found, better_half, search_rank, simplest_of_the_best
from parashot.questions.ways.measure import (
    FAILED,
    Training,
    for_ways,
    groups_of_processes,
    steps_in_common,
    time_ways,
)
from parashot.questions.ways.records import SkippedWay, WayBlock
from parashot.records import read_rows
from parashot.tasks.own import OwnTask, load_dataset, own_task

log = logging.getLogger(__name__)

FINALISTS = 3
SEARCH_SHARE, REFINE_SHARE, FINALS_SHARE = 0.35, 0.15, 0.35
"""Shares of the budget; the rest is for batch sizes."""

COMPILING_SECONDS = 300.0
"""What is left of the budget after the checks where torch.compile is tried, which takes a minute or two."""

REFINE_ROUNDS = 7
LEAST_LAUNCHES, LAUNCHES, MOST_LAUNCHES, LEAST_FINALISTS = 3, 4, 12, 4
"""Launches of the finals in any case, where there is time for so many ways, and at most: two do not show by
how much launches differ."""

ROUNDS = 8
"""Of the finals, over the first launches; more launches have as many rounds each."""


@dataclass(frozen=True)
class OwnTrainings:
    """The training of the user's file, in each way."""

    task: OwnTask
    parallel: ParallelParams

    def __call__(self, way: OwnWay) -> Training:
        """Return the task as it is loaded and computed in a way."""
        task = replace(self.task, batchsz=way.batchsz, workers=way.workers, prefetch=way.prefetch)
        task = replace(task, pin_memory=way.pin_memory, fused=way.fused)
        options = StepOptions(
            precision=way.precision,
            check_gradient=False,
            compile=way.compile,
            channels_last=way.channels_last,
        )
        return Training(task, options, self.parallel, way.prefetch)


def measure_own(file: Path, budget_seconds: float) -> OwnResults:
    """Find the fastest way to train what `file` describes, in about `budget_seconds`.

    Where the user stops it, or something was timed before it fails, what has been measured is returned.
    Raises `TaskError` for a file that does not describe a training, `DeviceError` where it fails in a rank.
    """
    begin = monotonic()
    task, parallel = own_task(file), own_parallel()
    import_seconds = process_time()
    listed = candidates(task, parallel)
    log.info("%s: %d ways to train, which are checked first", file.name, len(listed.ways))
    load_dataset.cache_clear()  # ranks load it for themselves
    with full_memory_named(task):
        checked = check_own(task, parallel, listed.ways)
    checked_seconds = monotonic() - begin
    left = max(0.0, budget_seconds - checked_seconds)
    log.info("%s: the checks took %s of %s", file.name, span(checked_seconds), span(budget_seconds))
    warnings = list(checked.warnings)
    if own_placement(parallel).device_type == "cpu" and has_nvidia_driver():
        warnings.append("torch cannot use the GPU here, so the CPU was measured; `parashot doctor` says more")
    failing = {each.what: each.reason for each in checked.skipped}
    if reason := failing.get(listed.ways[0].strategy):
        raise TaskError(f"{file}: default: {listed.ways[0].strategy} cannot train it: {reason}")
    ways = [each for each in listed.ways if each.strategy not in failing]
    with TemporaryDirectory(prefix="parashot-measure-") as name:
        measurement = Measurement(
            OwnTrainings(task, checked.parallel),
            checked_seconds,
            monotonic(),
            left,
            Path(name),
            ways,
            warnings,
            # this process may have done more than import; the checks have started others, too
            import_seconds=min(import_seconds, checked_seconds),
        )
        stopped, error = False, None
        try:
            with full_memory_named(task):
                found = measurement.search()
                measurement.finals(found, measurement.refine(found))
            measurement.look_closer()
        except KeyboardInterrupt:
            stopped = True
        except ParashotError as failure:
            if not measurement.results().search:
                raise
            stopped, error = True, failure
        return replace(
            measurement.results(),
            skipped=(*listed.skipped, *checked.skipped, *measurement.failed()),
            gradients=checked.gradients,
            stopped=stopped,
            error=error,
        )


@dataclass
class Measurement:
    """The measurement of one training after its checks, which took `checked_seconds`, within a budget."""

    trainings: OwnTrainings
    checked_seconds: float
    begin: float
    budget_seconds: float
    folder: Path
    ways: list[OwnWay]  # to be tried, then those that were; they grow when the best is refined
    warnings: list[str] = field(default_factory=list)
    import_seconds: float = 0.0  # of torch and the user's file, about as a process that is not forked takes
    launch_seconds: float = 0.0  # to start processes, before they make anything ready
    parts: list[StepParts] = field(default_factory=list)
    sizes: list[SizeRow] = field(default_factory=list)
    no_larger: str = ""

    def search(self) -> Found:
        """Search the ways for the best few."""
        seconds = self._until(SEARCH_SHARE) - monotonic()
        placement, processes = for_ways(self.ways, self.placement)
        ways, journal = tuple(self.ways), self.folder / "search.csv"
        before = monotonic()
        found = launch_apart(
            search_rank, placement, processes, self.trainings, ways, FINALISTS, seconds, journal
        )
        self.launch_seconds = max(0.0, found.began - before)
        tried = {each.way for each in found.blocks}
        self.ways = [each for each in ways if each.way in tried]
        if untried := len(ways) - len(tried | {each.what for each in self.failed()}):
            enough = self.checked_seconds + len(ways) * found.ready_seconds / READY_SHARE / SEARCH_SHARE
            more = self.checked_seconds + self.budget_seconds + 60
            self.warnings.append(
                f"{untried} of {len(ways)} ways were not tried, for want of time: "
                f"--budget {math.ceil(max(enough, more) / 60)} is about enough for all"
            )
        return found

    def refine(self, found: Found) -> list[OwnWay]:
        """Improve the simplest of the best ways; return the ways for the finals, the default first."""
        best, fastest = simplest_of_the_best(found), found.best[0]
        alone = better_half([each for each in self.ways if each.replicas == 1], found.blocks, FINALISTS)
        better = self._improved(best, found.block_seconds)
        simple = [each for each in alone if each.way != PLAIN][:1]  # what needs no second process, too
        may_keep = self.placement.device_type == "cpu" and not why_nothing_is_kept()
        kept = [renamed(each, keep_memory=True) for each in (better, self.ways[0]) if may_keep]
        # several changes at once have not been timed: `best` has been, and comes first
        is_timed = any(each.way == better.way for each in self._blocks("refining"))
        first = [better] if is_timed else [best, better]
        finalists = [self.ways[0], *first, *kept, fastest, best, *simple, *found.best]
        self.ways = _unique(*self.ways, *finalists)
        return _unique(*finalists)

    def _improved(self, best: OwnWay, block_seconds: float) -> OwnWay:
        """The best way with every change that makes it faster, of those that there is time for."""
        compiling = self.budget_seconds >= COMPILING_SECONDS
        changed = refinements(best, self.trainings.task, self.ways, compiling=compiling)
        seconds = self._until(SEARCH_SHARE + REFINE_SHARE) - monotonic()
        affordable = int(seconds / (REFINE_ROUNDS * block_seconds)) - 1
        changed = changed[: max(0, affordable)]
        if not changed:
            return best
        self.ways += changed
        bench = replace(self.trainings.parallel.bench, launches=1, blocks=REFINE_ROUNDS)
        try:
            self._time([best, *changed], bench, "refining")
        except DeviceError as error:  # a process was lost; a step that fails leaves its way out
            self.warnings.append(f"the best way was not refined ({error})")
            return best
        blocks = self._blocks("refining")
        timed = {each.way for each in blocks}
        return refined(best, [each for each in changed if each.way in timed], blocks)

    def finals(self, found: Found, finalists: Sequence[OwnWay]) -> None:
        """Time the first of the last ways against the default, in as many launches as there is time for.

        Two ways and three launches are timed in any case.
        """
        ends = self._until(SEARCH_SHARE + REFINE_SHARE + FINALS_SHARE)
        compiled = any(each.compile != "none" for each in finalists)  # by each launch anew
        least = finalists[:LEAST_FINALISTS]
        is_slow = compiled or monotonic() + LAUNCHES * self._launch(least, LAUNCHES, found) > ends
        launches, chosen = LEAST_LAUNCHES if is_slow else LAUNCHES, list(finalists)
        while len(chosen) > 2 and monotonic() + launches * self._launch(chosen, launches, found) > ends:
            chosen.pop()
        if {each.variables for each in chosen} < {each.variables for each in finalists}:
            self.warnings.append("keeping freed memory was not tried, for want of time")
        rounds = MOST_LAUNCHES * ROUNDS // launches
        bench = replace(self.trainings.parallel.bench, blocks=rounds, launches=MOST_LAUNCHES)
        before = (*self._blocks("search"), *self._blocks("refining"))
        steps = steps_in_common(chosen, before, bench) if apart_on(self.placement) else 0
        begin = monotonic()
        self._time(chosen, bench, "finals", range(launches), steps)
        more = int((ends - monotonic()) / (monotonic() - begin) * launches)
        more = min(more, MOST_LAUNCHES - launches) // 2 * 2  # each order as often
        if more > 0:
            further = range(launches, launches + more)
            self._time(chosen, bench, "finals", further, steps)

    def _launch(self, ways: Sequence[OwnWay], launches: int, found: Found) -> float:
        """Seconds that a launch of `ways` in the finals is expected to take."""
        starting = sum(
            found.load_seconds + (self.import_seconds if group[0].variables else self.launch_seconds)
            for group in groups_of_processes(ways, apart_on(self.placement))
        )
        return starting + len(ways) * (found.ready_seconds + ROUNDS / launches * found.block_seconds)

    def look_closer(self) -> None:
        """In the way that is recommended: where a step's time goes, and larger batches."""
        advice = advise_own(self.results())
        if advice is None:
            return
        chosen = advice.row.way
        for group in groups_of_processes(_unique(self.ways[0], chosen), apart_on(self.placement)):
            placement, processes = for_ways(group, self.placement)
            try:
                self.parts += launch_apart(parts_rank, placement, processes, self.trainings, group)
            except DeviceError as error:
                self.warnings.append(f"where the time of a step goes could not be measured ({error})")
        samples = self.trainings.task.samples
        self.no_larger = measure_sizes(
            self.trainings, chosen, samples, self.placement, self._until(1.0), self.sizes
        )

    def results(self) -> OwnResults:
        """What has been measured so far."""
        failed = {each.what for each in self.failed()}
        search, refining, finals = (
            tuple(each for each in self._blocks(name) if each.way not in failed)
            for name in ("search", "refining", "finals")
        )
        timed = {each.way for each in (*search, *refining, *finals)}
        return OwnResults(
            tuple(each for each in self.ways if each.way in timed),
            (),
            search,
            refining,
            finals,
            parts=tuple(self.parts),
            sizes=tuple(self.sizes),
            no_larger=self.no_larger,
            unused=self.trainings.parallel.ddp.find_unused_parameters,
            warnings=tuple(self.warnings),
        )

    def failed(self) -> list[SkippedWay]:
        """Ways of which a step has failed, or a process has ended."""
        file = self.folder / FAILED
        rows = read_rows(SkippedWay, file) if file.exists() else []
        return [*{each.what: each for each in rows}.values()]

    @property
    def placement(self) -> Placement:
        """Replicas on this machine."""
        return own_placement(self.trainings.parallel)

    def _time(
        self,
        ways: Sequence[OwnWay],
        bench: StrategyBenchParams,
        name: str,
        launches: range | None = None,
        steps: int = 0,
    ) -> None:
        """Time ways in turn; blocks go to the file NAME.csv. launches, steps: of `time_ways`, apart."""
        failed, journal = {each.what for each in self.failed()}, self.folder / f"{name}.csv"
        ways = [each for each in ways if each.way not in failed]
        time_ways(
            self.trainings, ways, self.placement, bench, name, journal, launches=launches, steps_apart=steps
        )

    def _blocks(self, name: str) -> tuple[WayBlock, ...]:
        journal = self.folder / f"{name}.csv"
        return tuple(read_rows(WayBlock, journal)) if journal.exists() else ()

    def _until(self, share: float) -> float:
        """When such a share of the budget is over."""
        return self.begin + share * self.budget_seconds


def _unique(*ways: OwnWay) -> list[OwnWay]:
    """Each way once, in the order of the first of its name."""
    return list({each.way: each for each in ways}.values())


@contextmanager
def full_memory_named(task: OwnTask) -> Iterator[None]:
    """Add what to do where a rank's memory was full, or Linux ended it for that."""
    try:
        yield
    except DeviceError as error:
        if "out of memory" in str(error) or "exit code -9" in str(error):
            raise DeviceError(
                f"{error}; memory may not hold {task.batchsz} samples per step: set a smaller batchsz in "
                f"{task.file}"
            ) from error
        raise


def own_placement(parallel: ParallelParams) -> Placement:
    """Replicas on this machine, whose processes keep no freed memory, as those of a script do not."""
    return replace(resolve_placement(parallel), keep_memory=False)


def apart_on(placement: Placement) -> bool:
    """Whether ways need processes of their own in the finals.

    On a CPU a process that has trained in other ways as well returns less memory to the system in each step,
    so that a way is up to a fifth faster there than in a program of its own.
    """
    return placement.device_type == "cpu"


def own_parallel() -> ParallelParams:
    """How strategies train a user's file."""
    return parse(ParallelParams, read_yaml(Path(__file__).with_name("settings.yaml")), "parallel")
