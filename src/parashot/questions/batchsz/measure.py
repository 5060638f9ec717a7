"""Batch sizes under DDP: the study's experiment with its limit, and what each size reaches in the same time.

First each size trains the whole budget; the baseline goes first and its time is the limit: a size that runs
over it is stopped, with its projected full time. Then short blocks of all sizes, interleaved, with and
without the exchange of gradients, give seconds per episode and the share of communication.

Last, every size has the seconds of `batchsz_study.seconds`, turned into episodes by its measured seconds per
episode under DDP. All begin with the same embedding; a seed draws the head's first weights and the episodes,
the same for every size. Running statistics are estimated anew before validation, since a large batch has too
few steps for them to settle. With a target, a training that does not reach it is done again from the start
with a schedule of twice the time. Replicas are one algorithm with one device, so each of these trainings runs
on one replica: as many at a time as there are. Those of the baseline in bf16 are repeated in fp32, step for
step.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import median

import torch
from torch import Tensor
from torch.optim.swa_utils import update_bn

from parashot.parallel.abilities import check_options
from parashot.parallel.context import Context, resolve_placement
from parashot.parallel.exchange import from_all_ranks
from parashot.parallel.launch import launch
from parashot.parallel.registry import build_strategy, step_options, unsupported_reason
from parashot.parallel.strategy import Strategy
from parashot.params import Params
from parashot.progress import Progress, span
from parashot.questions.batchsz.records import (
    BatchszBlock,
    BatchszResults,
    BatchszRun,
    BatchszTraining,
    GradientSample,
)
from parashot.questions.batchsz.rows import batchsz_rows, episode_seconds, reached, size_rows
from parashot.questions.runs import Setting, Stage
from parashot.questions.statistics import CONFIDENCE
from parashot.questions.timed import TimedStrategy, steps_of_blocks, timed_strategy
from parashot.records import Provenance
from parashot.task import Batch, Plan, mean_and_ci95
from parashot.tasks.relation import RelationTask
from parashot.train.loop import Trace, train_steps

log = logging.getLogger(__name__)

STATISTICS_EPISODES = 60
"""Episodes from which running statistics are estimated."""

NOISE_EPISODES = 40
"""Episodes whose gradients are compared."""

MOST_TIME = 8
"""Times `batchsz_study.seconds` that a training towards the target may have."""

Groups = Mapping[int, Context | None]
"""The ranks of each size, which has no more of them than episodes; None on the others."""


def study_batch_sizes(
    params: Params, packed: Path, pretrained: Path | None, out: Path, provenance: Provenance
) -> None:
    """Run the study of `params.batchsz_study` and write `out`; `pretrained`: embedding to begin with."""
    stage = Stage("batch sizes", "batchsz", provenance)
    placement, study = resolve_placement(params.parallel), params.batchsz_study
    task, options = RelationTask(params, packed, pretrained), step_options(params.train)
    check_options(options, placement.device_type)
    reason = params.parallel.switched_off("ddp") or unsupported_reason(
        "ddp", task, options, placement, params.parallel
    )
    none = (0, None, None, 0, study.episodes, None, None, None)
    skipped = BatchszResults(tuple(BatchszRun(size, "skipped", reason, *none) for size in study.sizes), ())
    results = skipped if reason else launch(batchsz_rank, placement, placement.replicas, task)
    if results is not None:
        stage.write(out, results, [*_in_blocks(results, params), *_in_equal_time(results, params)])


def batchsz_rank(context: Context, task: RelationTask) -> BatchszResults:
    """Measure on one rank; every rank walks through the same sizes in the same order."""
    study = task.params.batchsz_study
    sizes = [study.baseline, *(size for size in study.sizes if size != study.baseline)]
    groups = {size: context.first_ranks(min(size, context.world_size)) for size in sizes}
    runs, limit = list[BatchszRun](), None
    for size, group in groups.items():
        if group is not None:
            _ready(group, task, size).seconds(1)  # no size pays for what comes first
            train = task.params.train.of_size(size, max(size, study.episodes))
            runs.append(_train(group, task.with_params(train=train), limit))
            limit = limit or runs[-1].seconds
        limit = from_all_ranks(limit, context, patient=True)[0]
    blocks = _interleaved_blocks(context, groups, task)
    seconds = {}
    if context.is_main:  # which takes part in every size
        seconds = {size: median(episode_seconds(blocks, size).values()) for size in groups}
    trainings, in_fp32 = train_sizes(context, task, from_all_ranks(seconds, context, patient=True)[0])
    gradients = sample_gradients(context.alone(), task) if context.is_main else []
    runs.sort(key=lambda run: run.batchsz)
    return BatchszResults(tuple(runs), tuple(blocks), tuple(trainings), tuple(in_fp32), tuple(gradients))


def _train(context: Context, task: RelationTask, limit: float | None) -> BatchszRun:
    """Train the budget; stop at the first check past `limit` seconds."""
    params, study, size = task.params, task.params.batchsz_study, task.batchsz
    strategy = build_strategy("ddp", task, step_options(params.train), context, params.parallel)
    plan = strategy.plan(study.episodes, size, context)

    def within_limit(done: int, trace: Trace) -> bool:
        over = limit is not None and trace.seconds > limit and done < plan.steps
        return not from_all_ranks(over, context)[0]

    check_every = max(1, 2 * study.baseline // size)  # after as many episodes for every size
    trace = train_steps(
        strategy,
        task.batches(plan, context),
        plan,
        name=f"batchsz {size}",
        pauses=lambda done: done % check_every == 0,
        on_pause=within_limit,
    )
    episodes = min(len(trace.losses) * size, study.episodes)
    strategy.synchronise_buffers()
    accuracy, ci95 = mean_and_ci95(task.validate(strategy.whole_network(), context, last=True))
    stopped, seconds = len(trace.losses) < plan.steps, trace.seconds
    if context.is_main:
        said = "stopped" if stopped else "done"
        log.info("batchsz %d: %s after %.1f s and %d episodes", size, said, seconds, episodes)
    return BatchszRun(
        batchsz=size,
        status="stopped" if stopped else "ok",
        reason=f"over the time of batchsz {study.baseline}, {span(limit)}" if limit and stopped else "",
        replicas=context.world_size,
        seconds=seconds,
        limit_seconds=limit,
        episodes=episodes,
        episodes_budget=study.episodes,
        projected_seconds=seconds * study.episodes / episodes,
        val_accuracy=accuracy,
        val_accuracy_ci95=ci95,
    )


def _interleaved_blocks(context: Context, groups: Groups, task: RelationTask) -> list[BatchszBlock]:
    """Blocks of steps of every size, with and without the exchange, as long as those of strategies."""
    bench = task.params.parallel.bench
    ready = {size: None if group is None else _ready(group, task, size) for size, group in groups.items()}
    steps = steps_of_blocks(context, ready, bench)
    blocks, progress = [], Progress("batchsz", bench.blocks, "round")
    for number in range(bench.blocks):
        settings = [*itertools.product(groups, (True, False))]
        for size, synchronised in Random(number).sample(settings, len(settings)):  # alike on every rank
            context.wait_for_all()
            if (timed := ready[size]) is not None:
                with nullcontext() if synchronised else timed.strategy.without_exchange():
                    seconds = timed.seconds(steps[size])
                episodes = steps[size] * size
                blocks.append(BatchszBlock(number, size, synchronised, episodes, steps[size], seconds))
        if context.is_main:
            progress(number + 1)
    return blocks


def _ready(context: Context, task: RelationTask, size: int) -> TimedStrategy:
    options = step_options(task.params.train)
    return timed_strategy("ddp", task, options, context, task.params.parallel, batchsz=size)


def _in_blocks(results: BatchszResults, params: Params) -> Iterator[Setting]:
    for row in batchsz_rows(results, params.batchsz_study.baseline, CONFIDENCE):
        without = episode_seconds(results.blocks, row.batchsz, synchronised=False)
        series = {
            "seconds_per_episode": [*episode_seconds(results.blocks, row.batchsz).values()],
            "seconds_per_episode_without_exchange": [*without.values()],
        }
        options = {"batchsz": row.batchsz, "replicas": row.replicas, "episodes": row.episodes_budget}
        name, tags = f"batchsz{row.batchsz}", {"strategy": "ddp"}
        yield Setting(name, options, row, series, row.status, row.reason, tags)


def _in_equal_time(results: BatchszResults, params: Params) -> Iterator[Setting]:
    """What each size reached in the same time; a series has the trainings, by seed."""
    study, accuracies = params.batchsz_study, reached(results.trainings)
    for row in size_rows(results.trainings, study.baseline, study.target, CONFIDENCE):
        options = {"batchsz": row.batchsz, "seeds": row.seeds, "seconds": study.seconds}
        series = {"val_accuracy": [*accuracies[row.batchsz].values()]}
        yield Setting(f"batchsz{row.batchsz}_in_equal_time", options, row, series)


# --- what each size reaches in the same time ----------------------------------------------------------------


def train_sizes(
    context: Context, task: RelationTask, seconds_per_episode: Mapping[int, float]
) -> tuple[list[BatchszTraining], list[BatchszTraining]]:
    """Train every size with every seed, and the baseline in fp32 as well; none of these if all are in fp32.

    Every rank calls it, and gets all. By size and seed; trainings that went on towards the target follow in
    the order of their time.
    """
    params, study = task.params, task.params.batchsz_study
    seeds = range(params.seed, params.seed + study.seeds)
    jobs = [(task.with_seed(seed), size) for seed in seeds for size in seconds_per_episode]
    if params.train.precision != "fp32":
        full = task.with_params(
            train=replace(params.train, precision="fp32"), batchsz_study=replace(study, target=None)
        )
        jobs += [(full.with_seed(seed), study.baseline) for seed in seeds]
    alone = replace(context.alone(), local_world_size=context.local_world_size)  # beside the other ranks
    mine = [
        (own.params.train.precision, each)
        for own, size in jobs[context.rank :: context.world_size]
        for each in _towards_target(alone, own, size, seconds_per_episode[size])
    ]
    every = [each for ranks in from_all_ranks(mine, context, patient=True) for each in ranks]
    every.sort(key=lambda each: (each[1].batchsz, each[1].seed, each[1].seconds))
    trainings = [each for precision, each in every if precision == params.train.precision]
    return trainings, [each for precision, each in every if precision != params.train.precision]


def _towards_target(
    context: Context, task: RelationTask, size: int, seconds_per_episode: float
) -> Iterator[BatchszTraining]:
    """Train once, and on towards the target, if there is one, in twice the time each."""
    study = task.params.batchsz_study
    seconds = study.seconds
    while seconds <= MOST_TIME * study.seconds:
        steps = max(1, round(seconds / seconds_per_episode / size))
        found = _train_steps(context, task, size, seconds, steps)
        yield found
        if study.target is None or found.val_accuracy >= study.target:
            return
        seconds *= 2


def _train_steps(
    context: Context, task: RelationTask, size: int, seconds: float, steps: int
) -> BatchszTraining:
    """Train so many steps, which take about `seconds` under DDP, and validate."""
    study = task.params.batchsz_study
    train = task.params.train.of_size(size, steps * size, lr_scaling=study.lr_scaling, schedule="cosine")
    own = task.with_params(train=train)
    strategy = build_strategy("serial", own, step_options(own.params.train), context, own.params.parallel)
    plan = Plan(own.items, size)
    train_steps(strategy, own.batches(plan, context), plan, name=f"batchsz {size}")
    settling = own.batches(Plan(STATISTICS_EPISODES, 1), context, in_process=True)
    # it hands on the first entry of a list
    update_bn(([batch.to(context.device).data] for batch in settling), strategy.model)
    accuracies = own.validate(strategy.whole_network(), context, last=False)
    strategy.close()
    return BatchszTraining(
        batchsz=size,
        seed=own.params.seed,
        seconds=seconds,
        steps=steps,
        episodes=own.items,
        learning_rate=own.full_learning_rate,
        val_accuracy=float(accuracies.mean()),
    )


def sample_gradients(context: Context, task: RelationTask) -> list[GradientSample]:
    """Gradients of single episodes against their mean, before training; on one rank.

    For the gradient noise scale of McCandlish et al., An Empirical Model of Large-Batch Training (2018). Each
    is computed twice, so that no more than two are kept.
    """
    params = task.params
    strategy = build_strategy("serial", task, step_options(params.train), context, params.parallel)
    strategy.network.train()
    batches = [*task.batches(Plan(NOISE_EPISODES, 1), context, in_process=True)]
    mean = sum((_gradient(strategy, each) / len(batches) for each in batches), torch.zeros(()))
    samples = []
    for episode, batch in enumerate(batches):
        own = _gradient(strategy, batch)
        samples.append(GradientSample(episode, float(own @ own), float(own @ mean)))
    strategy.close()
    return samples


def _gradient(strategy: Strategy, batch: Batch) -> Tensor:
    strategy.optimizer.zero_grad(set_to_none=True)
    strategy.forward_backward(batch.to(strategy.context.device))
    return torch.cat([each.flatten() for each in strategy.gradients()]).double()
