"""What all of the advice buys: the same training by default and as advised, in interleaved blocks.

Each block makes the loader of its way and trains some steps with it. Without augmentation, which `jpeg` does
not allow.
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
from parashot.params import Params
from parashot.progress import Progress
from parashot.questions.gain.records import GainBlock, GainResults, Way
from parashot.questions.gain.rows import episode_seconds, gain_rows
from parashot.questions.loader.training import read_by
from parashot.questions.runs import Setting, Stage, Table
from parashot.questions.statistics import Resampling
from parashot.questions.timed import LoadedSteps, rounds_of_launch, steps_with_loading
from parashot.records import Provenance
from parashot.tasks.relation import RelationTask
from parashot.train.choices import computed_as


def bench_ways(params: Params, packed: Path, ways: Sequence[Way], out: Path, provenance: Provenance) -> None:
    """Time `ways`, none or two, as `params.parallel.bench` says, and write `out`."""
    stage = Stage("all of the advice", "gain", provenance)
    blocks = time_ways(params, packed, ways) if ways else []
    if blocks is None:
        return
    tables: dict[str, Table] = {"ways.csv": (Way, ways), "blocks.csv": (GainBlock, blocks)}
    stage.write(out, tables, _settings(GainResults(tuple(ways), tuple(blocks))))


def time_ways(params: Params, packed: Path, ways: Sequence[Way]) -> list[GainBlock] | None:
    """Time the ways in turn; None on every rank of torchrun but the main one."""
    replicas = max(each.replicas for each in ways)
    placement = replace(resolve_placement(params.parallel), replicas=replicas)
    processes = max(STRATEGIES[each.strategy].processes(each.replicas) for each in ways)
    blocks: list[GainBlock] = []
    for number in range(params.parallel.bench.launches):
        found = launch(ways_rank, placement, processes, params, packed, tuple(ways), number)
        if found is None:
            return None
        blocks += found
    return blocks


def ways_rank(
    context: Context, params: Params, packed: Path, ways: tuple[Way, ...], number: int
) -> list[GainBlock]:
    """Time the rounds of launch `number` on one rank; the main one's clock counts."""
    bench, control = params.parallel.bench, control_group(context)
    tasks = {each.way: _task(params, packed, each) for each in ways}
    strategies = {each.way: _strategy(context, tasks[each.way], each) for each in ways}

    def timed(way: Way, steps: int) -> list[LoadedSteps]:
        """Steps of one way, by rank that takes part in it; ranks that do not sleep."""
        wait_for_all(control)
        strategy, found = strategies[way.way], None
        if strategy is not None:
            in_advance = way.workers * params.loader.prefetch
            found = steps_with_loading(
                strategy, tasks[way.way], steps, threads=way.threads_per_replica, in_advance=in_advance
            )
        return [each for each in from_all_ranks(found, context, control) if each is not None]

    for way in ways:
        timed(way, bench.warmup_steps)
    blocks = []
    progress = Progress("gain", bench.blocks, "round")
    for round_number in rounds_of_launch(bench.blocks, number, bench.launches):
        for way in Random(round_number).sample(ways, len(ways)):  # the same order on every rank
            ranks = timed(way, bench.steps)
            waiting = fmean(each.waiting_seconds for each in ranks)
            episodes = bench.steps * params.train.batchsz
            blocks.append(GainBlock(number, round_number, way.way, episodes, ranks[0].seconds, waiting))
        if context.is_main:
            progress(round_number + 1)
    for strategy in strategies.values():
        if strategy is not None:
            strategy.close()
    return blocks


def _task(params: Params, packed: Path, way: Way) -> RelationTask:
    read = read_by(params, cast("Backend", way.backend), way.workers)
    return RelationTask(computed_as(read, way.computing), packed)


def _strategy(context: Context, task: RelationTask, way: Way) -> Strategy | None:
    """The strategy of a way on this rank; None on ranks that take no part in it."""
    mine = context.taking_part(STRATEGIES[way.strategy].processes(way.replicas))
    if mine is None:
        return None
    placement = replace(mine.placement, replicas=way.replicas, threads_per_replica=way.threads_per_replica)
    return build_strategy(
        way.strategy,
        task,
        step_options(task.params.train),
        replace(mine, placement=placement),
        task.params.parallel,
    )


def _settings(results: GainResults) -> list[Setting]:
    """One setting for each way."""
    seconds, settings = episode_seconds(results), []
    for row, way in zip(gain_rows(results, Resampling()), results.ways, strict=True):
        series = {"seconds_per_episode": list(seconds[way.way].values())}
        options = {name: value for name, value in asdict(way).items() if name != "way"}
        settings.append(Setting(way.way, options, row, series))
    return settings
