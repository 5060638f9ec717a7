"""Ways to train, timed in interleaved blocks: each makes the loader of its way and trains some steps with it.

Ways of a round run in random order.
"""

from __future__ import annotations

import gc
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from random import Random
from statistics import fmean
from time import monotonic
from typing import Generic, TypeVar

import torch

from parashot.errors import DeviceError, described
from parashot.hardware import usable_memory_bytes
from parashot.parallel.context import Context, Placement
from parashot.parallel.exchange import from_all_ranks
from parashot.parallel.launch import is_of_a_peer, launch_apart
from parashot.parallel.registry import STRATEGIES, build_strategy
from parashot.parallel.strategy import StepOptions, Strategy
from parashot.params import ParallelParams, StrategyBenchParams
from parashot.progress import Progress, passing
from parashot.questions.timed import (
    MOST_STEPS,
    LoadedSteps,
    rounds_of_launch,
    steps_before_the_clock,
    steps_of_block,
    steps_with_loading,
)
from parashot.questions.ways.records import SkippedWay, Way, WayBlock
from parashot.records import append_row
from parashot.task import Task

log = logging.getLogger(__name__)

T = TypeVar("T")
W = TypeVar("W", bound=Way)


@dataclass(frozen=True)
class Training:
    """What is trained in one way; prefetch: batches that each worker has ready before anyone asks."""

    task: Task
    options: StepOptions
    parallel: ParallelParams
    prefetch: int


Trainings = Callable[[W], Training]
"""The training of each way; pickled to every rank."""

LEAST_STEPS, LEAST_STEPS_OF_WORKERS = 2, 3
"""Of a block; workers are started for each, and their batches come in bursts."""

WAITS = 0.05
"""Share of a step without a batch from which its workers are taken to be what limits it."""

FULL = ("out of memory", "memory is full", "can't allocate memory", "exit code -9")
"""Words of errors where the memory did not suffice."""

FAILED = "failed.csv"
"""File of ways that were left out, beside a journal of blocks."""

BYTES_PER_PARAMETER = 16
"""In fp32: the weight, its gradient, and two numbers of Adam."""

ROOM = 0.5
"""Share of the memory for networks that wait; the one that is trained needs its activations as well."""


class WayError(DeviceError):
    """A step of a way to train has failed, on one rank or more; all ranks raise it."""


class ReadyWays(Generic[W]):
    """Ways to train on this rank, ready to be timed; every rank makes it, and calls its methods in one order.

    Ways that differ in loading alone share one strategy object. Where memory may not hold the networks of
    all of them, or once it was full, each is built when its block begins, in the place of the one before.
    The blocks of a round begin with the same sample, which no earlier round has read, if there are as many: a
    data set that keeps what was read favours no way.

    journal: CSV file that every block is added to when it has been timed; with one, a way that fails is
    left out and written into `FAILED` beside it, but for the first of `ways`. until: when, by the
    monotonic clock, no further way is made ready; two are in any case, the first among them. among: all ways
    that are compared, also in other processes. before: blocks of earlier launches; of ways that share a
    strategy, only the first is made ready where these have the others. Raises `WayError`.

    held: strategies at most at once. step_seconds: of each way that is ready, as last timed, alike on all
    ranks. turns: number of workers of a rank where a step of the way waits for them, else 1. first_seconds:
    until the first way was ready.
    """

    def __init__(
        self,
        context: Context,
        trainings: Trainings[W],
        ways: Sequence[W],
        journal: Path | None = None,
        until: float = math.inf,
        among: Sequence[W] = (),
        before: Sequence[WayBlock] = (),
    ) -> None:
        self.context, self.journal = context, journal
        self.first, self.has_workers = ways[0].way, any(way.workers for way in ways)
        in_advance = [trainings(each).prefetch * _workers_of_rank(each) for each in among or ways]
        self.untimed = max(map(steps_before_the_clock, in_advance))
        self.trainings = {way.way: trainings(way) for way in ways}
        self.contexts = {count: context.first_ranks(count) for count in dict.fromkeys(map(_processes, ways))}
        self.strategies: dict[tuple[object, ...], Strategy | None] = {}
        kinds = len({way.trained_as for way in ways})
        held = kinds if _fit_together(self.trainings[self.first].task, kinds, context) else 1
        self.held = min(from_all_ranks(held, context, patient=True))  # GPUs may differ
        self.step_seconds: dict[str, float] = {}
        self.turns: dict[str, int] = {}
        latest = {each.way: each for each in before}
        begin, self.first_seconds = monotonic(), 0.0
        for way in order_of_making_ready(ways):
            is_late, *_ = from_all_ranks(monotonic() > until, context, patient=True)
            if is_late and len(self.step_seconds) > 1:
                break
            steps = max(1, _workers_of_rank(way))  # a turn of them, whose batches may come in a burst
            if way.trained_as in self.strategies and way.way in latest:
                seconds, waits = latest[way.way].seconds / latest[way.way].steps, _waits(latest[way.way])
            elif ranks := self._timed_or_left_out(way, steps):
                seconds, waits = ranks[0].seconds / steps, any(map(_waits, ranks))
            else:
                continue
            self.step_seconds[way.way] = seconds
            self.first_seconds = self.first_seconds or monotonic() - begin
            self.turns[way.way] = steps if waits else 1

    def steps_of_block(self, ways: Sequence[W], bench: StrategyBenchParams) -> int:
        """Steps of a block of each of `ways`, some of which are ready.

        Workers deliver in turn: where a step waits for them their batches come in bursts, which only whole
        turns average.
        """
        names = [each.way for each in ways if each.way in self.step_seconds]
        fastest = min(self.step_seconds[each] for each in names)
        return _steps(fastest, max(self.turns[each] for each in names), self.has_workers, bench)

    def strategy(self, way: W) -> Strategy | None:
        """Return the strategy of a way, built if it is not there; None in a rank that sleeps meanwhile."""
        if way.trained_as not in self.strategies:
            if len(self.strategies) == self.held:
                self.close()
            self.strategies[way.trained_as] = self._built(way)
        return self.strategies[way.trained_as]

    def timed(self, way: W, steps: int, place: int = 0) -> list[LoadedSteps]:
        """Train so many steps; of each rank that takes part in it. The others sleep.

        place: each has samples of its own. Raises `WayError`, or `DeviceError` on a rank that has failed
        where its peers have not.
        """
        self.context.wait_for_all()
        timed, reason = self._attempted(way, steps, place)
        self.context.end_unless_all_fail(reason)
        every = from_all_ranks((timed, reason), self.context, patient=True)
        if reasons := [each for _, each in every if each]:
            if self.held > 1 and any(word in each for each in reasons for word in FULL):
                self.close()  # what waits takes memory that this one needs
                self.held = 1
                return self.timed(way, steps, place)
            raise WayError(reasons[0])
        return [each for each, _ in every if each is not None]

    def _attempted(self, way: W, steps: int, place: int) -> tuple[LoadedSteps | None, str]:
        """Steps of this rank, or why one has failed."""
        training, threads = self.trainings[way.way], way.threads_per_replica
        try:
            if (strategy := self.strategy(way)) is None:
                return None, ""
            timed = steps_with_loading(
                strategy,
                training.task,
                steps,
                threads=threads,
                in_advance=training.prefetch * _workers_of_rank(way),
                first=self.untimed + place * (self.untimed + MOST_STEPS),
            )
            return timed, ""
        except Exception as error:
            if is_of_a_peer(error, self.context):
                raise
            return None, described(error)

    def block(self, way: W, steps: int, launch: int, round_number: int) -> WayBlock | None:
        """Time one block; the main rank's clock counts. None where the way has failed, and is left out."""
        if way.way not in self.step_seconds:
            return None
        if not (ranks := self._timed_or_left_out(way, steps, 1 + round_number)):
            return None
        waiting = fmean(each.waiting_seconds for each in ranks)
        memory = sum(each.memory_bytes for each in ranks)
        self.step_seconds[way.way] = ranks[0].seconds / steps
        found = WayBlock(launch, round_number, way.way, steps, ranks[0].seconds, waiting, memory)
        if self.journal is not None and self.context.is_main:
            append_row(self.journal, WayBlock, found)
        return found

    def _timed_or_left_out(self, way: W, steps: int, place: int = 0) -> list[LoadedSteps]:
        """As `timed`; empty where the way has failed, and is left out."""
        try:
            return self.timed(way, steps, place)
        except WayError as error:
            if self.journal is None or way.way == self.first:
                raise
            self.step_seconds.pop(way.way, None)
            self._release([way.trained_as])
            if self.context.is_main:
                leave_out(way, error, self.journal)
            return []

    def close(self) -> None:
        """Release all strategies, and their memory."""
        self._release([*self.strategies])

    def _release(self, kinds: Sequence[tuple[object, ...]]) -> None:
        strategy = None
        for each in kinds:
            if (strategy := self.strategies.pop(each, None)) is not None:
                strategy.close()
        del strategy  # else the last one stays in memory
        gc.collect()  # a network and its optimizer refer to each other
        if self.context.device.type == "cuda":
            torch.cuda.empty_cache()

    def _built(self, way: W) -> Strategy | None:
        mine = self.contexts[_processes(way)]
        if mine is None:
            return None
        placement = replace(
            mine.placement, replicas=way.replicas, threads_per_replica=way.threads_per_replica
        )
        training, own = self.trainings[way.way], replace(mine, placement=placement)
        return build_strategy(way.strategy, training.task, training.options, own, training.parallel)


def steps_in_common(ways: Sequence[Way], blocks: Iterable[WayBlock], bench: StrategyBenchParams) -> int:
    """Steps of a block of each of `ways`, some of which were timed before in `blocks`, in any process."""
    latest = {each.way: each for each in blocks}
    seen = [(way, latest[way.way]) for way in ways if way.way in latest]
    turns = (max(1, _workers_of_rank(way)) for way, each in seen if _waits(each))
    fastest = min((each.seconds / each.steps for _, each in seen), default=bench.seconds)
    return _steps(fastest, max(turns, default=1), any(way.workers for way in ways), bench)


def _waits(timed: LoadedSteps | WayBlock) -> bool:
    """Whether its workers limited it."""
    return timed.waiting_seconds > WAITS * timed.seconds


def _steps(fastest: float, turn: int, has_workers: bool, bench: StrategyBenchParams) -> int:
    """Steps of a block where the fastest way takes so many seconds for one."""
    least = LEAST_STEPS_OF_WORKERS if has_workers else LEAST_STEPS
    return in_whole_turns(max(least, steps_of_block(fastest, bench)), turn)


def in_whole_turns(steps: int, turn: int) -> int:
    """At least so many steps, in whole turns of the workers that they wait for."""
    return math.ceil(steps / turn) * turn


def leave_out(way: Way, error: DeviceError, journal: Path) -> None:
    """Say that a way is left out, and why; write it into `FAILED` beside the journal."""
    log.warning("%s is left out: %s", way.way, error)
    append_row(journal.with_name(FAILED), SkippedWay, SkippedWay(way.way, str(error)))


def order_of_making_ready(ways: Sequence[W]) -> list[W]:
    """Order ways: the first of `ways`, those without workers, which are ready at once, then ever fewer."""
    return sorted(ways, key=lambda each: (each is not ways[0], each.workers > 0, -each.workers))


def _fit_together(task: Task, networks: int, context: Context) -> bool:
    """Whether a device holds so many networks with their optimizers at once."""
    if networks == 1:
        return True
    needed = networks * BYTES_PER_PARAMETER * sum(each.numel() for each in task.network().parameters())
    if context.device.type == "cuda":
        return needed < ROOM * torch.cuda.get_device_properties(context.device).total_memory
    return needed < ROOM * usable_memory_bytes() / context.local_world_size


def time_ways(
    trainings: Trainings[W],
    ways: Sequence[W],
    placement: Placement,
    bench: StrategyBenchParams,
    stage: str,
    journal: Path | None = None,
    *,
    launches: range | None = None,
    steps_apart: int = 0,
) -> list[WayBlock]:
    """Time ways as `bench` says.

    Ways that want other variables of the environment have processes of their own in each launch. journal: of
    `ReadyWays`; processes of other ways than the first may fail, too. launches: some of those of `bench`.
    steps_apart: steps of every block, where each way shall have processes of its own. Raises `DeviceError`.
    """
    groups, blocks, done = groups_of_processes(ways, apart=steps_apart > 0), list[WayBlock](), 0
    launches = range(bench.launches) if launches is None else launches
    progress = Progress(stage, len(launches) * len(groups), "part")
    for number in launches:
        for group in order_of_launch(groups, number):
            fitted, processes = for_ways(group, placement)
            try:
                blocks += launch_apart(
                    ways_rank,
                    fitted,
                    processes,
                    trainings,
                    group,
                    bench,
                    number,
                    stage,
                    journal,
                    tuple(ways),
                    tuple(blocks),
                    steps_apart,
                )
            except DeviceError as error:
                if journal is None or ways[0] in group:
                    raise
                groups.remove(group)
                for way in group:
                    leave_out(way, error, journal)
            done += 1
            progress(done)
    return blocks


def order_of_launch(groups: Sequence[T], number: int) -> list[T]:
    """Groups of processes in the order of a launch: A B C, C B A, B C A, A C B, …

    A drift of the machine cancels out over two launches, and what the first to read brings into the page
    cache is not always another one's gain.
    """
    first = number // 2 % len(groups)
    order = [*groups[first:], *groups[:first]]
    return order if number % 2 == 0 else order[::-1]


def groups_of_processes(ways: Sequence[W], apart: bool = False) -> list[tuple[W, ...]]:
    """Ways that the same processes train in turn, those without variables first; `apart`: each alone."""
    if apart:
        return [(way,) for way in ways]
    variables = attrgetter("variables")
    return [tuple(group) for _, group in groupby(sorted(ways, key=variables), variables)]


def for_ways(ways: Sequence[Way], placement: Placement) -> tuple[Placement, int]:
    """The placement and the number of processes that all of `ways`, of the same variables, find room in."""
    replicas = max(each.replicas for each in ways)
    return replace(placement, replicas=replicas, variables=ways[0].variables), max(map(_processes, ways))


def _processes(way: Way) -> int:
    return STRATEGIES[way.strategy].processes(way.replicas)


def _workers_of_rank(way: Way) -> int:
    """Workers of a rank, of those of the machine; some ranks may have one less."""
    return math.ceil(way.workers / _processes(way))


def ways_rank(
    context: Context,
    trainings: Trainings[W],
    ways: tuple[W, ...],
    bench: StrategyBenchParams,
    number: int,
    stage: str,
    journal: Path | None = None,
    among: tuple[W, ...] = (),
    before: tuple[WayBlock, ...] = (),
    steps: int = 0,
) -> list[WayBlock]:
    """Time the rounds of launch `number` on one rank.

    among, before: of `ReadyWays`. steps: of a block, if not 0.
    """
    ready = ReadyWays(context, trainings, ways, journal, among=among, before=before)
    blocks, rounds = [], rounds_of_launch(bench.blocks, number, bench.launches)
    for done, round_number in enumerate(rounds):
        # as many steps of every way, and the same order on every rank
        count = steps or ready.steps_of_block(ways, bench)
        for way in Random(round_number).sample(ways, len(ways)):
            if (block := ready.block(way, count, number, round_number)) is not None:
                blocks.append(block)
        if context.is_main:
            passing("%s: launch %d, round %d of %d", stage, number + 1, done + 1, len(rounds))
    ready.close()
    return blocks
