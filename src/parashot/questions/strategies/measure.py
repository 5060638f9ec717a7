"""Every time and speedup of the strategies: short blocks of steps, interleaved, in one set of processes.

While a strategy of one process is timed the other ranks sleep.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from random import Random

import torch

from parashot.parallel.abilities import check_options
from parashot.parallel.context import Context, Placement, resolve_placement
from parashot.parallel.exchange import from_all_ranks
from parashot.parallel.launch import launch_apart
from parashot.parallel.registry import STRATEGIES, step_options, unsupported_reason
from parashot.parallel.strategy import StepOptions
from parashot.params import ParallelParams, Params
from parashot.progress import Progress
from parashot.questions.runs import Setting, Stage
from parashot.questions.scaling.measure import new_messages, ready_sizes, time_round
from parashot.questions.statistics import CONFIDENCE
from parashot.questions.strategies.equality import difference, gradient, of_parameters
from parashot.questions.strategies.records import (
    CostMessage,
    CostStep,
    StepEquality,
    StepShares,
    StepTrace,
    StrategyBlock,
    StrategyResults,
    StrategyVariant,
)
from parashot.questions.strategies.rows import ALL_CORES, BASE, PER_PARAMETER, SMALL_BUCKETS, strategy_rows
from parashot.questions.strategies.shares import profiled_events, shares_of
from parashot.questions.strategies.trace import trace_step
from parashot.questions.timed import TimedStrategy, rounds_of_launch, steps_of_blocks, timed_strategy
from parashot.records import Provenance
from parashot.task import Task
from parashot.tasks.relation import RelationTask

ONE_GPU = "two replicas need two GPUs, and one is in use; parallel.device=cpu compares them on the CPU"


@dataclass(frozen=True)
class Benchmark:
    """The training whose steps are timed."""

    task: Task
    options: StepOptions
    parallel: ParallelParams


def bench_strategies(params: Params, packed: Path, out: Path, provenance: Provenance) -> None:
    """Time all enabled strategies on the Relation Network and write `out`."""
    stage = Stage("strategies", "strategy-bench", provenance)
    results = measure_strategies(
        Benchmark(RelationTask(params, packed), step_options(params.train), params.parallel)
    )
    stage.write(out, results, _settings(results))


def measure_strategies(bench: Benchmark) -> StrategyResults:
    """Time the steps of every strategy that can run here."""
    placement = resolve_placement(bench.parallel)
    check_options(bench.options, placement.device_type)
    variants = tuple(list_variants(bench, placement))
    able = [each for each in variants if each.status == "ok"]
    if not able:
        return StrategyResults(variants)
    processes = max(STRATEGIES[each.strategy].processes(each.replicas) for each in able)
    launches = [
        launch_apart(bench_rank, placement, processes, bench, able, number)
        for number in range(bench.parallel.bench.launches)
    ]
    return replace(
        launches[-1],
        variants=variants,
        blocks=tuple(block for each in launches for block in each.blocks),
        cost_steps=tuple(step for each in launches for step in each.cost_steps),
        cost_messages=tuple(message for each in launches for message in each.cost_messages),
    )


def list_variants(bench: Benchmark, placement: Placement) -> list[StrategyVariant]:
    """The rows of the comparison; what cannot or shall not run here is marked as skipped, with its reason."""
    variants = []
    batchsz, threads = bench.task.batchsz, placement.threads_per_replica
    for name, strategy in STRATEGIES.items():
        fitted = placement.for_batch(batchsz) if strategy.shares_items else placement
        reason = bench.parallel.switched_off(name) or unsupported_reason(
            name, bench.task, bench.options, fitted, bench.parallel
        )
        replicas = 1 if name == "serial" else fitted.replicas
        own = StrategyVariant(name, name, "skipped" if reason else "ok", reason, replicas, threads, batchsz)
        variants.append(own)
        if name == "allreduce" and not reason and bench.parallel.allreduce.flat:
            variants.append(replace(own, variant=PER_PARAMETER))
        if name == "ddp" and not reason and own.replicas > 1:
            variants.append(replace(own, variant=SMALL_BUCKETS))
        if name != "serial" and placement.device_type == "cuda" and placement.replicas == 1:
            variants.append(replace(own, variant=f"{name}-2", status="skipped", reason=ONE_GPU, replicas=2))
        if name == "serial" and not reason and placement.device_type == "cpu" and threads < placement.cores:
            variants.append(replace(own, variant=ALL_CORES, threads_per_replica=placement.cores))
    return variants


def bench_rank(
    context: Context, bench: Benchmark, variants: Sequence[StrategyVariant], launch: int
) -> StrategyResults:
    """Measure on one rank; only the main one's clock counts. The last launch looks into steps as well."""
    entries = {each.variant: _ready(context, bench, each) for each in variants}
    timed = _time_rounds(context, bench, entries, launch)
    is_last = launch == bench.parallel.bench.launches - 1
    traces: list[StepTrace] = []
    shares: list[StepShares] = []
    for variant, entry in entries.items() if is_last else ():  # these steps are not timed
        context.wait_for_all()
        traces.append(trace_step(variant, entry, context))
        context.wait_for_all()
        mine = shares_of(variant, context.rank, profiled_events(entry)) if entry is not None else []
        shares += chain.from_iterable(from_all_ranks(mine, context, patient=True))
    for entry in entries.values():
        if entry is not None:
            entry.strategy.close()
    equality = tuple(_equality(context, bench, variants)) if is_last else ()
    return replace(timed, anatomy=tuple(traces), shares=tuple(shares), equality=equality)


def _equality(
    context: Context, bench: Benchmark, variants: Sequence[StrategyVariant]
) -> Iterator[StepEquality]:
    """Compare the gradient of every strategy with that of one replica; one after another."""
    torch.set_num_threads(context.placement.threads_per_replica)
    base = dict[str, torch.Tensor]()
    if context.is_main:
        base = of_parameters(bench.task, gradient(BASE, bench.task, context.alone(), bench.parallel))
    for variant in variants:
        context.wait_for_all()
        mine = context.first_ranks(STRATEGIES[variant.strategy].processes(variant.replicas))
        if mine is None or variant.variant != variant.strategy:
            continue
        found = gradient(variant.strategy, bench.task, mine, bench.parallel)
        if context.is_main:
            yield StepEquality(variant.variant, difference(found, base))


def _time_rounds(
    context: Context,
    bench: Benchmark,
    entries: Mapping[str, TimedStrategy | None],
    launch: int,
) -> StrategyResults:
    """Time a block of every variant in random order in each round, and in every second one the cost model's.

    The model is fitted to medians, which need fewer rounds than ratios.
    """
    knobs = bench.parallel.bench
    sizes = ready_sizes(context, bench.task, bench.options, bench.parallel)
    messages = new_messages(context)
    blocks, cost_steps, cost_messages = list[StrategyBlock](), list[CostStep](), list[CostMessage]()
    progress = Progress("strategy-bench", knobs.blocks, "round")
    steps = steps_of_blocks(context, entries, knobs)
    time_round(context, sizes, messages, -1)
    for number in rounds_of_launch(knobs.blocks, launch, knobs.launches):
        for variant in Random(number).sample([*entries], len(entries)):  # the same order on every rank
            context.wait_for_all()
            if (entry := entries[variant]) is not None:
                seconds = entry.seconds(steps[variant])
                blocks.append(StrategyBlock(launch, number, variant, steps[variant], seconds))
        if number % 2 == 0:
            of_sizes, of_messages = time_round(context, sizes, messages, number)
            cost_steps += of_sizes
            cost_messages += of_messages
        if context.is_main:
            progress(number + 1)
    return StrategyResults(
        (), tuple(blocks), cost_steps=tuple(cost_steps), cost_messages=tuple(cost_messages)
    )


def _ready(context: Context, bench: Benchmark, variant: StrategyVariant) -> TimedStrategy | None:
    """A variant ready to be timed; None on ranks that take no part in it."""
    mine = context.first_ranks(STRATEGIES[variant.strategy].processes(variant.replicas))
    if mine is None:
        return None
    parallel = bench.parallel
    if variant.variant == PER_PARAMETER:
        parallel = replace(parallel, allreduce=replace(parallel.allreduce, flat=False))
    if variant.variant == SMALL_BUCKETS:
        parallel = replace(parallel, ddp=replace(parallel.ddp, bucket_mb=parallel.ddp.bucket_mb / 100))
    return timed_strategy(
        variant.strategy,
        bench.task,
        bench.options,
        mine,
        parallel,
        batchsz=variant.batchsz,
        threads=variant.threads_per_replica,
    )


def _settings(results: StrategyResults) -> list[Setting]:
    settings = []
    for row, variant in zip(strategy_rows(results, {}, CONFIDENCE), results.variants, strict=True):
        options = {key: value for key, value in asdict(variant).items() if key not in {"status", "reason"}}
        series = [each.seconds / each.steps for each in results.blocks if each.variant == row.variant]
        every, tags = {"seconds_per_step": series}, {"strategy": row.strategy}
        settings.append(Setting(row.variant, options, row, every, row.status, row.reason, tags))
    return settings
