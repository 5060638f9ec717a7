"""Every time and speedup of the strategies.

Short blocks of steps of all of them, interleaved, in one set of processes.

While a strategy of one process is timed the other ranks sleep. Inputs lie ready in memory as uint8; a step
includes their way to the device, their normalisation, forward, backward, exchange and the optimizer. The
clock stops when the device has done all it was given.
"""

from __future__ import annotations

import copy
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import distributed as dist
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.parallel import comm
from torch.utils._python_dispatch import TorchDispatchMode

from parashot.data.episodes import EpisodeSpec
from parashot.data.loaders import Batch, EpisodeDataset, Plan, episode_loader, prepare
from parashot.data.packed import PackedSplit
from parashot.files import replacing_folder
from parashot.findings.statistics import Resampling, ratio_interval
from parashot.model.network import RelationNetwork, build_network
from parashot.parallel.context import (
    Context,
    Placement,
    alone,
    control_group,
    fit_to_batch,
    place,
    wait_for_all,
)
from parashot.parallel.dp import Dp
from parashot.parallel.launch import launch
from parashot.parallel.registry import STRATEGIES, build_strategy, obstacle
from parashot.parallel.strategy import Strategy
from parashot.params import Pairing, Params
from parashot.records import (
    Status,
    StepAnatomy,
    StrategyBlock,
    StrategyVariant,
    write_metrics,
    write_rows,
    write_runs,
)
from parashot.study.runs import StageRuns
from parashot.train.loop import synchronise
from parashot.train.objective import build_objective, optimizer_maker

log = logging.getLogger(__name__)

KNOBS = (
    "seed",
    "episode",
    "model",
    "train.batchsz",
    "train.loss",
    "train.learning_rate",
    "parallel",
    "claims",
)
ALL_CORES = "serial-all-cores"
ONE_GPU = "two replicas need two GPUs, and one is here; parallel.device=cpu compares them on the CPU"
PAIRINGS: tuple[Pairing, ...] = ("concat", "split")


@dataclass
class Measured:
    """What the ranks bring back."""

    blocks: list[StrategyBlock] = field(default_factory=list)
    anatomy: list[StepAnatomy] = field(default_factory=list)
    pairing_seconds: dict[str, list[float]] = field(default_factory=dict)
    pairing_difference: float = 0.0
    ddp_workers_ok: bool | None = None


def bench_strategies(params: Params, packed: Path, out: Path, tags: Mapping[str, str]) -> None:
    """Time all enabled strategies and write `out`."""
    artifacts = ["blocks.csv", "variants.csv", "anatomy.csv"]
    runs = StageRuns("strategies", "strategy-bench", params, KNOBS, tags, artifacts)
    placement = fit_to_batch(place(params.parallel), params.train.batchsz)
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
        replicas = 1 if name == "serial" else placement.replicas
        enabled = getattr(params.parallel, name).enabled
        reason = (
            obstacle(name, placement, torch.cuda.device_count())
            if enabled
            else f"parallel.{name}.enabled is false"
        )
        status: Status = "skipped" if reason else "ok"
        threads = placement.threads_per_replica
        variants.append(StrategyVariant(name, name, status, reason, replicas, threads, params.train.batchsz))
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
    measured = Measured()
    bench = params.parallel.bench
    control = control_group(context)
    entries = {each.variant: _Entry.build(context, params, packed, each) for each in variants}
    for number in range(-1, bench.blocks):
        steps = bench.warmup_steps if number < 0 else bench.steps
        for variant, entry in entries.items():
            wait_for_all(control)
            if entry is None:
                continue
            seconds = entry.time(steps)
            if number >= 0:
                measured.blocks.append(StrategyBlock(number, variant, steps, seconds))
        if context.is_first and number >= 0:
            log.info("strategy-bench: round %d of %d", number + 1, bench.blocks)
    for variant, entry in entries.items():
        wait_for_all(control)
        seen = _watch_step(entry) if entry is not None else _Seen()
        measured.anatomy.append(_anatomy(variant, seen, context, control, params))
    if context.is_first:
        _compare_pairings(context, params, packed, measured)
    wait_for_all(control)
    measured.ddp_workers_ok = _workers_under_ddp(context, params, packed, control)
    for entry in entries.values():
        if entry is not None:
            entry.strategy.close()
    return measured


@dataclass
class _Entry:
    """A variant ready to be timed on this rank."""

    strategy: Strategy
    batches: list[Batch]
    threads: int

    @classmethod
    def build(cls, context: Context, params: Params, packed: Path, variant: StrategyVariant) -> _Entry | None:
        """None on ranks that take no part."""
        processes = STRATEGIES[variant.strategy].processes(variant.replicas)
        if processes == 1 and not context.is_first:
            return None
        mine = context if processes > 1 or context.ranks == 1 else alone(context)
        strategy = _strategy(variant.strategy, params, mine, params.model.pairing)
        return cls(
            strategy, _batches(params, packed, mine, params.parallel.bench.steps), variant.threads_per_replica
        )

    def time(self, steps: int) -> float:
        """Seconds of `steps` steps."""
        torch.set_num_threads(self.threads)
        synchronise(self.strategy.context)
        begin = time.perf_counter()
        for step in range(steps):
            self.strategy.step(self.batches[step % len(self.batches)])
        synchronise(self.strategy.context)
        return time.perf_counter() - begin


def _strategy(name: str, params: Params, context: Context, pairing: Pairing) -> Strategy:
    network = build_network(replace(params.model, pairing=pairing), params.seed)
    return build_strategy(
        name, network, build_objective(params), optimizer_maker(params), context, params.parallel
    )


def _dataset(params: Params, packed: Path, plan: Plan) -> EpisodeDataset:
    episode = params.episode
    spec = EpisodeSpec(episode.n_way, episode.k_shot, episode.k_query)
    return EpisodeDataset(
        PackedSplit(packed, "train"), spec, plan, params.seed, "packed", params.model.image_size
    )


def _batches(params: Params, packed: Path, context: Context, steps: int) -> list[Batch]:
    batchsz = params.train.batchsz
    dataset = _dataset(params, packed, Plan(steps * batchsz, batchsz, context.rank, context.ranks))
    return [dataset[step] for step in range(steps)]


# --- what a step does -------------------------------------------------------------------------------


@dataclass
class _Seen:
    """What was seen of one step on one rank."""

    threads: set[tuple[int, int]] = field(default_factory=set)
    calls: dict[str, int] = field(default_factory=dict)


def _watch_step(entry: _Entry) -> _Seen:
    """Do one step with eyes open: who ran a forward pass, which collectives were called."""
    seen = _Seen()

    def note(module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(module, RelationNetwork):
            seen.threads.add((os.getpid(), threading.get_ident()))

    torch.set_num_threads(entry.threads)
    hook = register_module_forward_hook(note)
    try:
        with ExitStack() as counting:
            counting.enter_context(_CollectiveCount(seen.calls))
            for target, name, kind in _moves(entry.strategy):
                counting.enter_context(_counted(target, name, kind, seen.calls))
            entry.strategy.step(entry.batches[0])
    finally:
        hook.remove()
    return seen


def _moves(strategy: Strategy) -> list[tuple[object, str, str]]:
    """Where DataParallel moves data: object, method, kind. On GPUs torch reduces within autograd."""
    if not isinstance(strategy, Dp):
        return []
    moves = [(strategy.transport, kind, kind) for kind in ("scatter", "replicate", "gather")]
    on_cpu = hasattr(strategy.transport, "reduce")
    return [
        *moves,
        (strategy.transport, "reduce", "reduce") if on_cpu else (comm, "reduce_add_coalesced", "reduce"),
    ]


@contextmanager
def _counted(target: object, name: str, kind: str, calls: dict[str, int]) -> Iterator[None]:
    """Count calls of `target.name` under `kind`."""
    method = getattr(target, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        calls[kind] = calls.get(kind, 0) + 1
        return method(*args, **kwargs)

    with mock.patch.object(target, name, call):
        yield


class _CollectiveCount(TorchDispatchMode):
    """Counts every collective of torch.distributed, those that DDP calls from C++ included."""

    def __init__(self, calls: dict[str, int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's modes carry no annotations
        self.calls = calls

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            name = func.overloadpacket.__name__
            self.calls[name] = self.calls.get(name, 0) + 1
        return func(*args, **(kwargs or {}))


def _anatomy(
    variant: str, seen: _Seen, context: Context, control: dist.ProcessGroup | None, params: Params
) -> StepAnatomy:
    """Put together what all ranks saw; calls are the first rank's."""
    everyone: list[_Seen] = [seen]
    if control is not None:
        everyone = [_Seen()] * context.ranks
        dist.all_gather_object(everyone, seen, group=control)
    threads = set().union(*(each.threads for each in everyone))
    calls = everyone[0].calls
    parameters = build_network(params.model, params.seed).parameters()
    return StepAnatomy(
        variant=variant,
        processes=len({process for process, _ in threads}),
        threads=len(threads),
        all_reduces=calls.get("allreduce_", 0),
        broadcasts=calls.get("broadcast_", 0) + calls.get("replicate", 0),
        scatters=calls.get("scatter", 0),
        gathers=calls.get("gather", 0),
        reduces=calls.get("reduce", 0),
        gradient_bytes=sum(each.numel() * each.element_size() for each in parameters),
    )


# --- two of the study's claims ----------------------------------------------------------------------


def _compare_pairings(context: Context, params: Params, packed: Path, measured: Measured) -> None:
    """Is joining support and query avoidable?

    Equal scores in float64, and the time of both ways, interleaved.
    """
    mine = alone(context)
    strategies = {pairing: _strategy("serial", params, mine, pairing) for pairing in PAIRINGS}
    batches = _batches(params, packed, mine, 2)
    torch.set_num_threads(context.placement.threads_per_replica)
    measured.pairing_difference = _largest_difference(strategies, batches[0], params)
    measured.pairing_seconds = {pairing: [] for pairing in PAIRINGS}
    for number in range(-1, params.parallel.bench.blocks):
        for pairing, strategy in strategies.items():
            entry = _Entry(strategy, batches, context.placement.threads_per_replica)
            seconds = entry.time(1)
            if number >= 0:
                measured.pairing_seconds[pairing].append(seconds)


@torch.no_grad()
def _largest_difference(strategies: Mapping[Pairing, Strategy], batch: Batch, params: Params) -> float:
    """Largest difference between the scores of both pairings, in float64 and eval mode, on one episode."""
    scores = []
    for strategy in strategies.values():
        device = strategy.context.device
        network = copy.deepcopy(strategy.network).double().eval()
        support = prepare(batch.support[:1].to(device), params.model.image_size).double()
        query = prepare(batch.query[:1].to(device), params.model.image_size).double()
        scores.append(network(support, query))
    return float((scores[0] - scores[1]).abs().max())


def _workers_under_ddp(
    context: Context, params: Params, packed: Path, control: dist.ProcessGroup | None
) -> bool | None:
    """Do loader workers work under DDP?

    Each rank reads two batches with two workers and without; None if one rank.
    """
    if control is None:
        return None
    batchsz = params.train.batchsz
    dataset = _dataset(params, packed, Plan(2 * batchsz, batchsz, context.rank, context.ranks))
    with_workers = list(episode_loader(dataset, 2, 2, torch.device("cpu")))
    same = all(
        torch.equal(batch.support, dataset[step].support) and torch.equal(batch.query, dataset[step].query)
        for step, batch in enumerate(with_workers)
    )
    everyone = [False] * context.ranks
    dist.all_gather_object(everyone, same, group=control)
    return all(everyone)


# --- writing ----------------------------------------------------------------------------------------


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
    metrics |= _pairing_metrics(params, measured)
    if measured.ddp_workers_ok is not None:
        metrics["ddp_workers_ok"] = int(measured.ddp_workers_ok)
    with replacing_folder(out) as folder:
        write_rows(folder / "variants.csv", StrategyVariant, variants)
        write_rows(folder / "blocks.csv", StrategyBlock, measured.blocks)
        write_rows(folder / "anatomy.csv", StepAnatomy, measured.anatomy)
        write_metrics(folder / "metrics.json", metrics)
        write_runs(
            folder / "records.jsonl", runs.all({k: v for k, v in metrics.items() if not isinstance(v, str)})
        )


def _pairing_metrics(params: Params, measured: Measured) -> dict[str, float | int | str | None]:
    if not measured.pairing_seconds:
        return {}
    concat, split = (measured.pairing_seconds[pairing] for pairing in PAIRINGS)
    ratio = ratio_interval(concat, split, Resampling.of(params.claims))
    return {
        "concat_split_max_difference": measured.pairing_difference,
        "concat_split_ratio": ratio.value,
        "concat_split_ratio_low": ratio.low,
        "concat_split_ratio_high": ratio.high,
    }
