"""Every time and speedup of the strategies: short blocks of steps, interleaved, in one set of processes.

While a strategy of one process is timed the other ranks sleep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import distributed as dist

from parashot.parallel.abilities import check_options
from parashot.parallel.context import (
    Context,
    Placement,
    control_group,
    resolve_placement,
    wait_for_all,
)
from parashot.parallel.launch import launch
from parashot.parallel.registry import STRATEGIES, step_options, unsupported_reason
from parashot.parallel.strategy import StepOptions
from parashot.params import ParallelParams, Params
from parashot.progress import Progress
from parashot.questions.runs import Setting, Stage, Table
from parashot.questions.scaling.measure import CostBlocks, new_messages, ready_sizes, time_round
from parashot.questions.scaling.records import CostMessage, CostStep
from parashot.questions.statistics import Resampling
from parashot.questions.strategies.records import (
    StepShares,
    StepTrace,
    StrategyBlock,
    StrategyResults,
    StrategyVariant,
)
from parashot.questions.strategies.rows import step_seconds, strategy_rows
from parashot.questions.strategies.shares import merge_shares, profile_shares
from parashot.questions.strategies.trace import RankTrace, merge_traces, trace_step
from parashot.questions.timed import TimedStrategy, timed_strategy
from parashot.records import Provenance
from parashot.task import Task
from parashot.tasks.relation import RelationTask

ALL_CORES = "serial-all-cores"
PER_PARAMETER = "allreduce-per-parameter"
"""`allreduce` with a message for each parameter, which shows what joining them is worth."""

ONE_GPU = "two replicas need two GPUs, and one is here; parallel.device=cpu compares them on the CPU"


Entries = Mapping[str, TimedStrategy | None]
"""Variants ready to be timed; None on ranks that take no part in one."""


@dataclass(frozen=True)
class Benchmark:
    """The training whose steps are timed, and by which strategies."""

    task: Task
    options: StepOptions
    parallel: ParallelParams
    variants: tuple[StrategyVariant, ...] = ()


def bench_strategies(params: Params, packed: Path, out: Path, provenance: Provenance) -> None:
    """Time all enabled strategies on the Relation Network and write `out`."""
    stage = Stage("strategies", "strategy-bench", provenance)
    results = measure_strategies(
        Benchmark(RelationTask(params, packed), step_options(params.train), params.parallel)
    )
    if results is None:
        return
    tables: dict[str, Table] = {
        "variants.csv": (StrategyVariant, results.variants),
        "blocks.csv": (StrategyBlock, results.blocks),
        "anatomy.csv": (StepTrace, results.anatomy),
        "shares.csv": (StepShares, results.shares),
        "cost_steps.csv": (CostStep, results.cost_steps),
        "cost_messages.csv": (CostMessage, results.cost_messages),
    }
    stage.write(out, tables, _settings(results))


def measure_strategies(bench: Benchmark) -> StrategyResults | None:
    """Time the steps of every strategy that can run here; None on every rank of torchrun but the main one."""
    placement = resolve_placement(bench.parallel)
    check_options(bench.options, placement.device_type)
    variants = tuple(list_variants(bench, placement))
    able = tuple(each for each in variants if each.status == "ok")
    if not able:
        return StrategyResults(variants)
    processes = max(STRATEGIES[each.strategy].processes(each.replicas) for each in able)
    results = launch(bench_rank, placement, processes, replace(bench, variants=able))
    return replace(results, variants=variants) if results else None


def list_variants(bench: Benchmark, placement: Placement) -> list[StrategyVariant]:
    """The rows of the comparison; what cannot or shall not run here is marked as skipped, with its reason."""
    variants = []
    batchsz, threads = bench.task.batchsz, placement.threads_per_replica
    for name, strategy in STRATEGIES.items():
        fitted = placement.for_batch(batchsz) if strategy.shares_items else placement
        reason = bench.parallel.switched_off(name) or unsupported_reason(
            name, bench.task, bench.options, fitted, bench.parallel, torch.cuda.device_count()
        )
        replicas = 1 if name == "serial" else fitted.replicas
        own = StrategyVariant(name, name, "skipped" if reason else "ok", reason, replicas, threads, batchsz)
        variants.append(own)
        if name == "allreduce" and not reason and bench.parallel.allreduce.flat:
            variants.append(replace(own, variant=PER_PARAMETER))
        if name != "serial" and placement.device_type == "cuda" and placement.replicas == 1:
            variants.append(replace(own, variant=f"{name}-2", status="skipped", reason=ONE_GPU, replicas=2))
        if name == "serial" and not reason and placement.device_type == "cpu" and threads < placement.cores:
            variants.append(replace(own, variant=ALL_CORES, threads_per_replica=placement.cores))
    return variants


def bench_rank(context: Context, bench: Benchmark) -> StrategyResults:
    """Measure on one rank; only the main one's clock counts."""
    control = control_group(context)
    entries = {each.variant: _ready(context, bench, each) for each in bench.variants}
    blocks, costs = _time_rounds(context, bench, entries, control)
    traces: list[StepTrace] = []
    shares: list[StepShares] = []
    for variant, entry in entries.items():  # steps that are traced and profiled are not timed
        wait_for_all(control)
        trace = trace_step(entry) if entry is not None else RankTrace()
        traces.append(merge_traces(variant, trace, entry, context, control))
        wait_for_all(control)
        profiled = profile_shares(entry) if entry is not None else []
        shares += merge_shares(variant, profiled, context, control)
    for entry in entries.values():
        if entry is not None:
            entry.strategy.close()
    return StrategyResults(
        bench.variants, tuple(blocks), tuple(traces), tuple(shares), tuple(costs.steps), tuple(costs.messages)
    )


def _time_rounds(
    context: Context, bench: Benchmark, entries: Entries, control: dist.ProcessGroup | None
) -> tuple[list[StrategyBlock], CostBlocks]:
    """Time a block of every variant, then what the cost model is fitted to, in each round."""
    knobs = bench.parallel.bench
    sizes = ready_sizes(context, bench.task, bench.options, bench.parallel)
    messages = new_messages(context)
    timed: list[StrategyBlock] = []
    costs = CostBlocks()
    progress = Progress("strategy-bench", knobs.blocks, "round")
    for number in range(-1, knobs.blocks):
        steps = knobs.warmup_steps if number < 0 else knobs.steps
        blocks = []
        for variant, entry in entries.items():
            wait_for_all(control)
            if entry is not None:
                blocks.append(StrategyBlock(number, variant, steps, entry.seconds(steps)))
        found = time_round(context, sizes, messages, number, control)
        if number >= 0:
            timed += blocks
            costs.add(found)
            if context.is_main:
                progress(number + 1)
    return timed, costs


def _ready(context: Context, bench: Benchmark, variant: StrategyVariant) -> TimedStrategy | None:
    """A variant ready to be timed on this rank; None on ranks that take no part in it."""
    mine = _taking_part(context, STRATEGIES[variant.strategy].processes(variant.replicas))
    if mine is None:
        return None
    parallel = bench.parallel
    if variant.variant == PER_PARAMETER:
        parallel = replace(parallel, allreduce=replace(parallel.allreduce, flat=False))
    return timed_strategy(
        variant.strategy,
        bench.task,
        bench.options,
        mine,
        parallel,
        batchsz=variant.batchsz,
        steps=bench.parallel.bench.steps,
        threads=variant.threads_per_replica,
    )


def _taking_part(context: Context, processes: int) -> Context | None:
    """The first `processes` ranks by themselves; None for the others. Every rank calls it."""
    if processes > 1:
        return context.first_ranks(processes)
    if context.world_size == 1:
        return context
    return context.alone() if context.is_main else None


def _settings(results: StrategyResults) -> list[Setting]:
    """One setting for each variant."""
    seconds = step_seconds(results.blocks)
    settings = []
    for row, variant in zip(strategy_rows(results, {}, Resampling()), results.variants, strict=True):
        options = {key: value for key, value in asdict(variant).items() if key not in {"status", "reason"}}
        series = {"seconds_per_step": list(seconds.get(row.variant, {}).values())}
        tags = {"strategy": row.strategy}
        settings.append(Setting(row.variant, options, row, series, row.status, row.reason, tags))
    return settings
