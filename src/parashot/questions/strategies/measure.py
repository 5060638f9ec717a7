"""Every time and speedup of the strategies: short blocks of steps, interleaved, in one set of processes.

While a strategy of one process is timed the other ranks sleep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
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


@dataclass
class StrategyMeasurement:
    """Records that the ranks bring back."""

    blocks: list[StrategyBlock] = field(default_factory=list)
    traces: list[StepTrace] = field(default_factory=list)
    shares: list[StepShares] = field(default_factory=list)
    costs: CostBlocks = field(default_factory=CostBlocks)


def bench_strategies(params: Params, packed: Path, out: Path, provenance: Provenance) -> None:
    """Time all enabled strategies on the Relation Network and write `out`."""
    stage = Stage("strategies", "strategy-bench", provenance)
    bench = Benchmark(RelationTask(params, packed), step_options(params.train), params.parallel)
    variants, measured = measure_strategies(bench)
    if measured is None:
        return
    tables: dict[str, Table] = {
        "variants.csv": (StrategyVariant, variants),
        "blocks.csv": (StrategyBlock, measured.blocks),
        "anatomy.csv": (StepTrace, measured.traces),
        "shares.csv": (StepShares, measured.shares),
        "cost_steps.csv": (CostStep, measured.costs.steps),
        "cost_messages.csv": (CostMessage, measured.costs.messages),
    }
    stage.write(out, tables, _settings(variants, measured))


def measure_strategies(bench: Benchmark) -> tuple[list[StrategyVariant], StrategyMeasurement | None]:
    """Time the steps of every strategy that can run here; None on every rank of torchrun but the main one."""
    placement = resolve_placement(bench.parallel)
    check_options(bench.options, placement.device_type)
    variants = list_variants(bench, placement)
    able = tuple(each for each in variants if each.status == "ok")
    if not able:
        return variants, StrategyMeasurement()
    processes = max(STRATEGIES[each.strategy].processes(each.replicas) for each in able)
    return variants, launch(bench_rank, placement, processes, replace(bench, variants=able))


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


def bench_rank(context: Context, bench: Benchmark) -> StrategyMeasurement:
    """Measure on one rank; only the main one's clock counts."""
    control = control_group(context)
    entries = {each.variant: _ready(context, bench, each) for each in bench.variants}
    measured = StrategyMeasurement()
    _time_rounds(context, bench, entries, control, measured)
    for variant, entry in entries.items():  # steps that are traced and profiled are not timed
        wait_for_all(control)
        trace = trace_step(entry) if entry is not None else RankTrace()
        measured.traces.append(merge_traces(variant, trace, entry, context, control))
        wait_for_all(control)
        shares = profile_shares(entry) if entry is not None else []
        measured.shares += merge_shares(variant, shares, context, control)
    for entry in entries.values():
        if entry is not None:
            entry.strategy.close()
    return measured


def _time_rounds(
    context: Context,
    bench: Benchmark,
    entries: Entries,
    control: dist.ProcessGroup | None,
    measured: StrategyMeasurement,
) -> None:
    """Time a block of every variant, then what the cost model is fitted to, in each round."""
    knobs = bench.parallel.bench
    sizes = ready_sizes(context, bench.task, bench.options, bench.parallel)
    messages = new_messages(context)
    progress = Progress("strategy-bench", knobs.blocks, "round")
    for number in range(-1, knobs.blocks):
        steps = knobs.warmup_steps if number < 0 else knobs.steps
        blocks = []
        for variant, entry in entries.items():
            wait_for_all(control)
            if entry is not None:
                blocks.append(StrategyBlock(number, variant, steps, entry.seconds(steps)))
        costs = time_round(context, sizes, messages, number, control)
        if number >= 0:
            measured.blocks += blocks
            measured.costs.add(costs)
            if context.is_main:
                progress(number + 1)


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


def _settings(variants: Sequence[StrategyVariant], measured: StrategyMeasurement) -> list[Setting]:
    """One setting for each variant."""
    results = StrategyResults(
        tuple(variants), tuple(measured.blocks), tuple(measured.traces), tuple(measured.shares)
    )
    seconds = step_seconds(measured.blocks)
    settings = []
    for row, variant in zip(strategy_rows(results, {}, Resampling()), variants, strict=True):
        options = {key: value for key, value in asdict(variant).items() if key not in {"status", "reason"}}
        series = {"seconds_per_step": list(seconds.get(row.variant, {}).values())}
        tags = {"strategy": row.strategy}
        settings.append(Setting(row.variant, options, row, series, row.status, row.reason, tags))
    return settings
