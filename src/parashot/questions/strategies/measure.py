"""Every time and speedup of the strategies: short blocks of steps, interleaved, in one set of processes.

While a strategy of one process is timed the other ranks sleep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import distributed as dist

from parashot.files import replacing_folder
from parashot.parallel.abilities import check_abilities
from parashot.parallel.context import (
    Context,
    Placement,
    alone,
    control_group,
    first_ranks,
    fit_to_batch,
    place,
    wait_for_all,
)
from parashot.parallel.launch import launch
from parashot.parallel.registry import STRATEGIES, obstacle, splits_batch
from parashot.params import Params
from parashot.progress import Progress
from parashot.questions.runs import StageRuns
from parashot.questions.scaling.measure import CostBlocks, new_messages, ready_sizes, time_round
from parashot.questions.scaling.records import CostMessage, CostStep
from parashot.questions.statistics import Resampling
from parashot.questions.step.copy_overlap import OverlapTimes, measure_overlap
from parashot.questions.step.pairings import PairingTimes, compare_pairings
from parashot.questions.step.step_claims import StepTrials, try_steps
from parashot.questions.strategies.rank_workers import workers_work_in_ranks
from parashot.questions.strategies.records import StepAnatomy, StepShares, StrategyBlock, StrategyVariant
from parashot.questions.strategies.shares import all_shares, watch_shares
from parashot.questions.strategies.trace import Seen, anatomy, watch_step
from parashot.questions.timed import TimedStrategy
from parashot.records import Status, write_metrics, write_rows, write_runs
from parashot.train.assemble import new_strategy, ready_batches

KNOBS = (
    "seed",
    "episode",
    "model",
    "train.batchsz",
    "train.loss",
    "train.learning_rate",
    "train.lr_relation",
    "train.precision",
    "train.compile",
    "train.accumulate",
    "train.recompute",
    "train.on_nonfinite",
    "augment",
    "parallel",
    "claims",
)
ALL_CORES = "serial-all-cores"
PER_PARAMETER = "allreduce-per-parameter"
"""`allreduce` with a message for each parameter, so that joining them is seen to pay."""

ONE_GPU = "two replicas need two GPUs, and one is here; parallel.device=cpu compares them on the CPU"


@dataclass
class Measured:
    """What the ranks bring back."""

    blocks: list[StrategyBlock] = field(default_factory=list)
    anatomy: list[StepAnatomy] = field(default_factory=list)
    shares: list[StepShares] = field(default_factory=list)
    costs: CostBlocks = field(default_factory=CostBlocks)
    pairings: PairingTimes | None = None
    overlap: OverlapTimes | None = None
    trials: StepTrials | None = None
    ddp_workers_ok: bool | None = None


def bench_strategies(params: Params, packed: Path, out: Path, tags: Mapping[str, str]) -> None:
    """Time all enabled strategies and write `out`."""
    artifacts = [
        "blocks.csv",
        "variants.csv",
        "anatomy.csv",
        "shares.csv",
        "cost_steps.csv",
        "cost_messages.csv",
    ]
    runs = StageRuns("strategies", "strategy-bench", params, KNOBS, tags, artifacts)
    placement = place(params.parallel)
    check_abilities(params, placement.device_type)
    variants = list_variants(params, placement)
    able = [each for each in variants if each.status == "ok"]
    if able:
        processes = max(STRATEGIES[each.strategy].processes(each.replicas) for each in able)
        measured = launch(bench_rank, placement, processes, params, packed, able)
    else:
        measured = Measured()
    if measured is not None:
        _write(out, params, variants, measured, runs)


def list_variants(params: Params, placement: Placement) -> list[StrategyVariant]:
    """The rows of the comparison, with what cannot or shall not run here marked as skipped."""
    variants = []
    for name in STRATEGIES:
        fitted = fit_to_batch(placement, params.train.batchsz) if splits_batch(name) else placement
        replicas = 1 if name == "serial" else fitted.replicas
        reason = params.parallel.switched_off(name) or obstacle(
            name, params, fitted, torch.cuda.device_count()
        )
        status: Status = "skipped" if reason else "ok"
        threads = placement.threads_per_replica
        variants.append(StrategyVariant(name, name, status, reason, replicas, threads, params.train.batchsz))
        if name == "allreduce" and not reason and params.parallel.allreduce.flat:
            variants.append(replace(variants[-1], variant=PER_PARAMETER))
        if name != "serial" and placement.device_type == "cuda" and placement.replicas == 1:
            variants.append(
                StrategyVariant(f"{name}-2", name, "skipped", ONE_GPU, 2, threads, params.train.batchsz)
            )
        if name == "serial" and not reason and placement.device_type == "cpu" and threads < placement.cores:
            variants.append(
                StrategyVariant(ALL_CORES, name, "ok", "", 1, placement.cores, params.train.batchsz)
            )
    return variants


def bench_rank(
    context: Context, params: Params, packed: Path, variants: Sequence[StrategyVariant]
) -> Measured:
    """The measurement of one rank; only the first one's clock counts."""
    control = control_group(context)
    entries = {each.variant: _ready(context, params, packed, each) for each in variants}
    measured = Measured()
    _time_rounds(context, params, packed, entries, control, measured)
    _watch_steps(context, params, entries, control, measured)
    if context.is_first:
        measured.pairings = compare_pairings(context, params, packed)
        measured.overlap = measure_overlap(context, params, packed)
        measured.trials = try_steps(context, params, packed)
    wait_for_all(control)
    measured.ddp_workers_ok = workers_work_in_ranks(context, params, packed, control)
    for entry in entries.values():
        if entry is not None:
            entry.strategy.close()
    return measured


Entries = Mapping[str, TimedStrategy | None]
"""Variants ready to be timed; None on ranks that take no part in one."""


def _time_rounds(
    context: Context,
    params: Params,
    packed: Path,
    entries: Entries,
    control: dist.ProcessGroup | None,
    measured: Measured,
) -> None:
    """Time a block of every variant, then what the model of cost is fitted to, in each round."""
    bench = params.parallel.bench
    sizes, messages = ready_sizes(context, params, packed), new_messages(context)
    progress = Progress("strategy-bench", bench.blocks, "round")
    for number in range(-1, bench.blocks):
        steps = bench.warmup_steps if number < 0 else bench.steps
        blocks = []
        for variant, entry in entries.items():
            wait_for_all(control)
            if entry is not None:
                blocks.append(StrategyBlock(number, variant, steps, entry.seconds(steps)))
        costs = time_round(context, sizes, messages, number, control)
        if number >= 0:
            measured.blocks += blocks
            measured.costs.add(costs)
            if context.is_first:
                progress(number + 1)


def _watch_steps(
    context: Context,
    params: Params,
    entries: Entries,
    control: dist.ProcessGroup | None,
    measured: Measured,
) -> None:
    """Look into steps that are not timed: what they are made of, and where their time goes."""
    for variant, entry in entries.items():
        wait_for_all(control)
        seen = watch_step(entry) if entry is not None else Seen()
        measured.anatomy.append(anatomy(variant, seen, context, control, params))
        wait_for_all(control)
        watched = watch_shares(entry) if entry is not None else []
        measured.shares += all_shares(variant, watched, context, control)


def _ready(context: Context, params: Params, packed: Path, variant: StrategyVariant) -> TimedStrategy | None:
    """A variant ready to be timed on this rank; None on ranks that take no part in it."""
    processes = STRATEGIES[variant.strategy].processes(variant.replicas)
    mine = _taking_part(context, processes)
    if mine is None:
        return None
    if variant.variant == PER_PARAMETER:
        one_by_one = replace(params.parallel.allreduce, flat=False)
        params = replace(params, parallel=replace(params.parallel, allreduce=one_by_one))
    strategy = new_strategy(variant.strategy, params, mine)
    batches = ready_batches(params, packed, strategy, params.train.batchsz, params.parallel.bench.steps)
    return TimedStrategy(strategy, batches, variant.threads_per_replica)


def _taking_part(context: Context, processes: int) -> Context | None:
    """The first `processes` ranks by themselves; None for the others. Every rank calls it."""
    if processes > 1:
        return first_ranks(context, processes)
    if context.ranks == 1:
        return context
    return alone(context) if context.is_first else None


def _write(
    out: Path, params: Params, variants: Sequence[StrategyVariant], measured: Measured, runs: StageRuns
) -> None:
    metrics: dict[str, float | int | str | None] = {}
    for each in variants:
        seconds = [block.seconds / block.steps for block in measured.blocks if block.variant == each.variant]
        median = float(np.median(seconds)) if seconds else None
        metrics[f"{each.variant}_seconds_per_step"] = median
        runs.child(
            f"bench {each.variant}",
            {
                "strategy": each.strategy,
                "replicas": each.replicas,
                "threads_per_replica": each.threads_per_replica,
                "batchsz": each.batchsz,
            },
            {"seconds_per_step": seconds},
            {"seconds_per_step_median": median, "episodes_per_second": median and each.batchsz / median},
            {"strategy": each.strategy},
            each.reason,
            each.status,
        )
    if measured.pairings is not None:
        metrics |= measured.pairings.metrics(Resampling.of(params.claims))
    if measured.overlap is not None:
        metrics |= measured.overlap.metrics(Resampling.of(params.claims))
    if measured.trials is not None:
        metrics |= measured.trials.metrics(Resampling.of(params.claims))
    if measured.ddp_workers_ok is not None:
        metrics["ddp_workers_ok"] = int(measured.ddp_workers_ok)
    with replacing_folder(out) as folder:
        write_rows(folder / "variants.csv", StrategyVariant, variants)
        write_rows(folder / "blocks.csv", StrategyBlock, measured.blocks)
        write_rows(folder / "anatomy.csv", StepAnatomy, measured.anatomy)
        write_rows(folder / "shares.csv", StepShares, measured.shares)
        write_rows(folder / "cost_steps.csv", CostStep, measured.costs.steps)
        write_rows(folder / "cost_messages.csv", CostMessage, measured.costs.messages)
        write_metrics(folder / "metrics.json", metrics)
        write_runs(folder / "records.jsonl", runs.all(metrics))
