"""Ways to train, timed in interleaved blocks: each makes the loader of its way and trains some steps with it.

Ways of a round run in random order. Without augmentation: `jpeg` normalises images before any could be done,
and all ways shall do equal work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from statistics import fmean
from typing import cast

from parashot.data.episode_dataset import Backend
from parashot.parallel.context import Context, control_group, resolve_placement, wait_for_all
from parashot.parallel.exchange import from_all_ranks
from parashot.parallel.launch import launch
from parashot.parallel.registry import STRATEGIES, build_strategy, step_options
from parashot.parallel.strategy import Strategy
from parashot.params import AugmentParams, Params
from parashot.progress import Progress
from parashot.questions.runs import Setting
from parashot.questions.statistics import Resampling
from parashot.questions.timed import LoadedSteps, rounds_of_launch, steps_with_loading
from parashot.questions.ways.records import Way, WayBlock
from parashot.questions.ways.rows import step_seconds_by_way, way_rows
from parashot.tasks.relation import RelationTask
from parashot.train.choices import computed_as

PLAIN = AugmentParams(crop=1.0, flip=False, jitter=0.0)


def read_by(params: Params, backend: Backend, workers: int) -> Params:
    """The same params with another way of reading, and without augmentation."""
    return replace(params, augment=PLAIN, loader=replace(params.loader, backend=backend, workers=workers))


def time_ways(params: Params, packed: Path, ways: Sequence[Way], stage: str) -> list[WayBlock] | None:
    """Time ways as `params.parallel.bench` says; None on every rank of torchrun but the main one.

    stage: its name, for progress.
    """
    placement = replace(resolve_placement(params.parallel), replicas=max(each.replicas for each in ways))
    processes = max(STRATEGIES[each.strategy].processes(each.replicas) for each in ways)
    blocks: list[WayBlock] = []
    for number in range(params.parallel.bench.launches):
        found = launch(ways_rank, placement, processes, params, packed, tuple(ways), number, stage)
        if found is None:
            return None
        blocks += found
    return blocks


def ways_rank(
    context: Context, params: Params, packed: Path, ways: tuple[Way, ...], number: int, stage: str
) -> list[WayBlock]:
    """Time the rounds of launch `number` on one rank; the main one's clock counts."""
    bench, control = params.parallel.bench, control_group(context)
    tasks = {way.way: _task(params, packed, way) for way in ways}
    strategies = _strategies(context, ways, tasks)

    def timed(way: Way, steps: int) -> list[LoadedSteps]:
        """Steps of one way, by rank that takes part in it; the others sleep."""
        wait_for_all(control)
        strategy, found = strategies[way.way], None
        if strategy is not None:
            in_advance = way.workers * params.loader.prefetch
            found = steps_with_loading(
                strategy, tasks[way.way], steps, threads=way.threads_per_replica, in_advance=in_advance
            )
        return [each for each in from_all_ranks(found, context, control) if each is not None]

    # the most workers first, so that all ranks have the server that theirs are forked from
    for way in sorted(ways, key=lambda each: -each.workers):
        timed(way, 1)
    blocks = []
    progress = Progress(stage, bench.blocks, "round")
    for round_number in rounds_of_launch(bench.blocks, number, bench.launches):
        for way in Random(round_number).sample(ways, len(ways)):  # the same order on every rank
            ranks = timed(way, bench.steps)
            waiting = fmean(each.waiting_seconds for each in ranks)
            memory = sum(each.memory_bytes for each in ranks)
            blocks.append(
                WayBlock(number, round_number, way.way, bench.steps, ranks[0].seconds, waiting, memory)
            )
        if context.is_main:
            progress(round_number + 1)
    for strategy in {id(each): each for each in strategies.values() if each is not None}.values():
        strategy.close()
    return blocks


def way_settings(ways: Sequence[Way], blocks: Sequence[WayBlock], base: str, prefix: str) -> list[Setting]:
    """One setting for each way, named after it."""
    seconds, settings = step_seconds_by_way(blocks), []
    for row, way in zip(way_rows(ways, blocks, base, Resampling()), ways, strict=True):
        options = {name: value for name, value in asdict(way).items() if name != "way"}
        series = {"seconds_per_step": list(seconds[way.way].values())}
        settings.append(Setting(f"{prefix}{way.way}", options, row, series))
    return settings


def _task(params: Params, packed: Path, way: Way) -> RelationTask:
    read = read_by(params, cast("Backend", way.backend), way.workers)
    return RelationTask(computed_as(read, way.computing), packed)


def _strategies(
    context: Context, ways: Sequence[Way], tasks: dict[str, RelationTask]
) -> dict[str, Strategy | None]:
    """The strategy of each way, one for all that differ in loading alone; None on ranks that have no part."""
    built: dict[tuple[object, ...], Strategy | None] = {}
    found: dict[str, Strategy | None] = {}
    for way in ways:
        key = (way.strategy, way.replicas, way.threads_per_replica, way.computing)
        if key not in built:
            built[key] = _strategy(context, tasks[way.way], way)
        found[way.way] = built[key]
    return found


def _strategy(context: Context, task: RelationTask, way: Way) -> Strategy | None:
    mine = context.taking_part(STRATEGIES[way.strategy].processes(way.replicas))
    if mine is None:
        return None
    placement = replace(mine.placement, replicas=way.replicas, threads_per_replica=way.threads_per_replica)
    options, own = step_options(task.params.train), replace(mine, placement=placement)
    return build_strategy(way.strategy, task, options, own, task.params.parallel)
