"""The trainings of the study of warm-up: one network after the other, each on all of this machine's cores."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from parashot.data.batches import Plan
from parashot.parallel.abilities import check_abilities
from parashot.parallel.context import Context, place
from parashot.parallel.launch import launch
from parashot.params import Params
from parashot.progress import Progress
from parashot.questions.accuracy.records import WarmupRun
from parashot.train.assemble import new_strategy, training_batches, validate
from parashot.train.loop import naming, train_steps
from parashot.train.objective import learning_rates

log = logging.getLogger(__name__)


def train_all(params: Params, packed: Path) -> list[WarmupRun]:
    """Train every size with and without a warm-up, seed by seed."""
    placement = place(params.parallel)
    check_abilities(params, placement.device_type)
    whole = replace(placement, replicas=1, threads_per_replica=placement.cores)
    return launch(_train_all, whole, 1, params, packed) or []


def _train_all(context: Context, params: Params, packed: Path) -> list[WarmupRun]:
    runs = []
    settings = list(_settings(params))
    progress = Progress("warmup", len(settings), "training")
    for each in settings:
        runs.append(_train(context, each, packed))
        log.info(
            "warmup: batchsz %d, %d steps of warm-up, seed %d: %.2f%%",
            runs[-1].batchsz,
            runs[-1].warmup_steps,
            runs[-1].seed,
            100 * runs[-1].val_accuracy,
        )
        progress(len(runs))
    return runs


def _settings(params: Params) -> Iterator[Params]:
    """Params of each training; a seed draws first weights and episodes of its own."""
    study = params.warmup_study
    for seed, size, warm in itertools.product(range(study.seeds), sorted(study.sizes), (False, True)):
        steps = Plan(study.episodes, size).steps
        train = replace(
            params.train,
            batchsz=size,
            episodes=study.episodes,
            lr_scaling="linear",
            warmup_steps=max(1, round(study.warmup_share * steps)) if warm else 0,
        )
        yield replace(params, seed=params.seed + seed, train=train)


def _train(context: Context, params: Params, packed: Path) -> WarmupRun:
    train = params.train
    plan = Plan(train.episodes, train.batchsz)
    strategy = new_strategy("serial", params, context)
    with naming(f"batchsz {train.batchsz}, seed {params.seed}"):
        train_steps(
            strategy,
            training_batches(params, packed, plan, context),
            plan,
            learning_rate=learning_rates(params, plan.steps, train.batchsz),
            pauses=lambda done: False,
            on_pause=lambda done, trace: True,
        )
    accuracies = validate(strategy.whole_network(), params, packed, params.evaluate.val_episodes, context)
    strategy.close()
    steady = replace(params, train=replace(train, schedule="constant", warmup_steps=0))
    full = learning_rates(steady, plan.steps, train.batchsz)(0)
    return WarmupRun(
        train.batchsz, params.seed, train.warmup_steps, plan.steps, full, float(accuracies.mean())
    )
