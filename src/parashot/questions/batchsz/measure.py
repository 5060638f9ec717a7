"""The same episodes in steps of several sizes under DDP.

The study's batch-size experiment, with its time limit.

First each size trains the whole budget; the baseline goes first and its time is the limit: a size that runs
over it is stopped and reported so, with its projected full time. Then short blocks of all sizes, interleaved,
with and without the exchange of gradients, give seconds per episode with an interval and the share of time
spent in communication.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import torch
from torch import distributed as dist

from parashot.data.batches import Plan
from parashot.files import replacing_folder
from parashot.parallel.abilities import check_abilities
from parashot.parallel.context import Context, control_group, first_ranks, place, wait_for_all
from parashot.parallel.launch import launch
from parashot.parallel.registry import obstacle
from parashot.params import Params
from parashot.progress import Progress
from parashot.questions.batchsz.records import BatchszBlock, BatchszRun
from parashot.questions.runs import StageRuns
from parashot.questions.timed import TimedStrategy
from parashot.records import write_metrics, write_rows, write_runs
from parashot.train.assemble import new_strategy, ready_batches, training_batches, validate
from parashot.train.evaluate import mean_and_ci95
from parashot.train.knobs import KNOBS_BESIDE_SIZE
from parashot.train.loop import Trace, naming, train_steps
from parashot.train.objective import learning_rates

log = logging.getLogger(__name__)
T = TypeVar("T")

KNOBS = (
    *KNOBS_BESIDE_SIZE,
    "train.lr_scaling",
    "train.warmup_steps",
    "parallel.backend",
    "parallel.init_method",
    "parallel.ddp",
    "batchsz_study",
)


@dataclass
class Measured:
    """What the ranks bring back."""

    runs: list[BatchszRun] = field(default_factory=list)
    blocks: list[BatchszBlock] = field(default_factory=list)


def study_batch_sizes(params: Params, packed: Path, out: Path, tags: Mapping[str, str]) -> None:
    """Run the study of `params.batchsz_study` and write `out`."""
    runs = StageRuns("batch sizes", "batchsz", params, KNOBS, tags, ["runs.csv", "blocks.csv"])
    placement = place(params.parallel)
    check_abilities(params, placement.device_type)
    reason = params.parallel.switched_off("ddp") or obstacle(
        "ddp", params, placement, torch.cuda.device_count()
    )
    measured: Measured | None = Measured()
    if reason:
        measured = Measured([_skipped(size, reason, params) for size in params.batchsz_study.sizes])
    else:
        measured = launch(batchsz_rank, placement, placement.replicas, params, packed)
    if measured is not None:
        _write(out, measured, runs)


def batchsz_rank(context: Context, params: Params, packed: Path) -> Measured:
    """The study of one rank; every rank walks through the same sizes in the same order."""
    study = params.batchsz_study
    sizes = [study.baseline, *(size for size in study.sizes if size != study.baseline)]
    control = control_group(context)
    groups = {size: first_ranks(context, min(size, context.ranks)) for size in sizes}
    measured, limit = Measured(), None
    _first_use(groups[study.baseline], params, packed)
    for size in sizes:
        if (group := groups[size]) is not None:
            run = _train(group, params, packed, size, limit)
            measured.runs.append(run)
            limit = limit or run.seconds
        limit = _from_first(limit, context.ranks, control)
    measured.blocks = _interleaved_blocks(context, control, groups, params, packed)
    measured.runs.sort(key=lambda run: run.batchsz)
    return measured


def _first_use(group: Context | None, params: Params, packed: Path) -> None:
    """Do a step that is forgotten: the baseline sets the limit, and must not pay for what comes first."""
    if group is not None:
        _ready(group, params, packed, params.batchsz_study.baseline).seconds(1)


def _train(context: Context, params: Params, packed: Path, size: int, limit: float | None) -> BatchszRun:
    """Train the budget in steps of `size`; stop at the first check past `limit` seconds."""
    study = params.batchsz_study
    plan = Plan(study.episodes, size, context.rank, context.ranks)
    strategy = new_strategy("ddp", params, context)
    batches = training_batches(params, packed, plan, context)

    def within_limit(done: int, trace: Trace) -> bool:
        over = limit is not None and trace.times.seconds > limit and done < plan.steps
        return not _from_first(over, context.ranks, context.group)

    check_every = max(1, 2 * study.baseline // size)  # after as many episodes for every size
    with naming(f"batchsz {size}"):
        trace = train_steps(
            strategy,
            batches,
            plan,
            learning_rate=learning_rates(params, plan.steps, size),
            pauses=lambda done: done % check_every == 0,
            on_pause=within_limit,
        )
    done = len(trace.losses)
    episodes = min(done * size, study.episodes)
    strategy.synchronise_buffers()
    accuracies = validate(strategy.whole_network(), params, packed, params.evaluate.val_episodes, context)
    accuracy, ci95 = mean_and_ci95(accuracies)
    stopped = done < plan.steps
    seconds = trace.times.seconds
    if context.is_first:
        log.info(
            "batchsz %d: %s after %.1f s and %d of %d episodes",
            size,
            "stopped" if stopped else "done",
            seconds,
            episodes,
            study.episodes,
        )
    return BatchszRun(
        batchsz=size,
        status="stopped" if stopped else "ok",
        reason=f"over the time of batchsz {study.baseline}, {limit:.3g} s" if stopped else "",
        replicas=context.ranks,
        seconds=seconds,
        limit_seconds=limit,
        episodes=episodes,
        episodes_budget=study.episodes,
        projected_seconds=seconds * study.episodes / episodes,
        val_accuracy=accuracy,
        val_accuracy_ci95=ci95,
    )


def _interleaved_blocks(
    context: Context,
    control: dist.ProcessGroup | None,
    groups: Mapping[int, Context | None],
    params: Params,
    packed: Path,
) -> list[BatchszBlock]:
    """Blocks of the same episodes for every size, with and without the exchange, after a step to warm up."""
    study = params.batchsz_study
    ready = {size: _ready(group, params, packed, size) for size, group in groups.items() if group is not None}
    for size in groups:
        wait_for_all(control)
        if size in ready:
            ready[size].seconds(1)
    blocks = []
    progress = Progress("batchsz", study.blocks, "round")
    for number in range(study.blocks):
        for size, synchronised in itertools.product(groups, (True, False)):
            wait_for_all(control)
            if (timed := ready.get(size)) is not None:
                steps = len(timed.batches)
                with nullcontext() if synchronised else timed.strategy.without_exchange():
                    seconds = timed.seconds(steps)
                blocks.append(BatchszBlock(number, size, synchronised, study.block_episodes, steps, seconds))
        if context.is_first:
            progress(number + 1)
    return blocks


def _ready(context: Context, params: Params, packed: Path, size: int) -> TimedStrategy:
    """Size `size` ready to be timed, with the batches of one block."""
    strategy = new_strategy("ddp", params, context)
    steps = params.batchsz_study.block_episodes // size
    batches = ready_batches(params, packed, strategy, size, steps)
    return TimedStrategy(strategy, batches, context.placement.threads_per_replica)


def _from_first(value: T, ranks: int, group: dist.ProcessGroup | None) -> T:
    """The first rank's `value`, on every rank of `group`."""
    if ranks == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0, group=group)
    return box[0]


def _skipped(size: int, reason: str, params: Params) -> BatchszRun:
    budget = params.batchsz_study.episodes
    return BatchszRun(size, "skipped", reason, 0, 0.0, None, 0, budget, 0.0, None, None)


def _write(out: Path, measured: Measured, runs: StageRuns) -> None:
    metrics: dict[str, float | int | str | None] = {}
    for run in measured.runs:
        mine = [block for block in measured.blocks if block.batchsz == run.batchsz]
        series = {
            name: [block.seconds / block.episodes for block in mine if block.synchronised is synchronised]
            for name, synchronised in (
                ("seconds_per_episode", True),
                ("seconds_per_episode_without_exchange", False),
            )
        }
        numbers: dict[str, float | None] = {
            "seconds": run.seconds,
            "projected_seconds": run.projected_seconds,
            "val_accuracy": run.val_accuracy,
            "val_accuracy_ci95": run.val_accuracy_ci95,
        }
        if run.status == "skipped":  # its zeros are no measurements
            numbers = {}
        runs.child(
            f"batchsz {run.batchsz}",
            {"batchsz": run.batchsz, "replicas": run.replicas, "episodes": run.episodes_budget},
            series,
            numbers,
            {"strategy": "ddp"},
            run.reason,
            run.status,
        )
        metrics |= {f"batchsz{run.batchsz}_{key}": value for key, value in numbers.items()}
    with replacing_folder(out) as folder:
        write_rows(folder / "runs.csv", BatchszRun, measured.runs)
        write_rows(folder / "blocks.csv", BatchszBlock, measured.blocks)
        write_metrics(folder / "metrics.json", metrics)
        write_runs(folder / "records.jsonl", runs.all(metrics))
