"""What each batch size reaches in the same time, over seeds; and how noisy gradients are.

Every size has the seconds of `batchsz_study.seconds`, turned into episodes by its measured seconds per
episode under DDP. All begin with the same embedding; a seed draws the head's first weights and the episodes,
the same for every size. The rate grows with the size (`batchsz_study.lr_scaling`) and falls to 0 over the
steps that a size has. Running statistics are estimated anew from training episodes before validation, since a
large batch has too few steps for them to settle. With a target (`batchsz_study.target`) a training that does
not reach it is done again from the start with a schedule of twice the time: what is found is the time in
which a whole training reaches the target.

Sizes are compared by what they learn, and replicas are one algorithm with one device, so each training runs
on one replica: as many at a time as there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice, product

import torch
from torch import Tensor
from torch.optim.swa_utils import update_bn

from parashot.parallel.context import Context
from parashot.parallel.exchange import from_all_ranks
from parashot.parallel.registry import build_strategy, step_options
from parashot.parallel.strategy import Strategy
from parashot.questions.batchsz.records import BatchszTraining, GradientSample
from parashot.task import Batch, Plan
from parashot.tasks.relation import RelationTask
from parashot.train.loop import naming, train_steps

STATISTICS_EPISODES = 60
"""Episodes from which running statistics are estimated."""

NOISE_EPISODES = 40
"""Episodes whose gradients are compared."""

MOST_TIME = 8
"""Times `batchsz_study.seconds` that a training towards the target may have."""


def train_sizes(
    context: Context, task: RelationTask, seconds_per_episode: Mapping[int, float]
) -> list[BatchszTraining]:
    """Train every size with every seed, shared out over the ranks. Every rank calls it, and gets all.

    By size and seed; trainings that went on towards the target follow in the order of their time.
    """
    study = task.params.batchsz_study
    seeds = range(task.params.seed, task.params.seed + study.seeds)
    trainings = list(product(seeds, seconds_per_episode.items()))
    mine = [
        training
        for seed, (size, seconds) in trainings[context.rank :: context.world_size]
        for training in _towards_target(context.alone(), task.with_seed(seed), size, seconds)
    ]
    everyone = [each for ranks in from_all_ranks(mine, context) for each in ranks]
    return sorted(everyone, key=lambda each: (each.batchsz, each.seed, each.seconds))


def _towards_target(
    context: Context, task: RelationTask, size: int, seconds_per_episode: float
) -> Iterator[BatchszTraining]:
    """Train once, and on towards the target, if there is one, in twice the time each."""
    study = task.params.batchsz_study
    seconds = study.seconds
    while seconds <= MOST_TIME * study.seconds:
        found = _train(context, task, size, seconds, seconds_per_episode)
        yield found
        if study.target is None or found.val_accuracy >= study.target:
            return
        seconds *= 2


def _train(
    context: Context, task: RelationTask, size: int, seconds: float, seconds_per_episode: float
) -> BatchszTraining:
    """Train for about so many seconds: as many whole steps as they make, at least one."""
    study, train = task.params.batchsz_study, task.params.train
    steps = max(1, round(seconds / seconds_per_episode / size))
    own = task.with_params(
        train=replace(
            train,
            batchsz=size,
            episodes=steps * size,
            accumulate=min(train.accumulate, size),
            lr_scaling=study.lr_scaling,
            schedule="cosine",
        )
    )
    strategy = build_strategy("serial", own, step_options(own.params.train), context, own.params.parallel)
    plan = Plan(own.items, size)
    with naming(f"batchsz {size}"):
        train_steps(
            strategy, own.batches(plan, context), plan, pauses=lambda done: False, on_pause=lambda *_: True
        )
    _settle_statistics(strategy, own)
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


def _settle_statistics(strategy: Strategy, task: RelationTask) -> None:
    """Estimate the running statistics of batch norm anew, from the first training episodes."""
    device = strategy.context.device
    plan = Plan(STATISTICS_EPISODES, 1)
    batches = islice(task.batches(plan, strategy.context, in_process=True), plan.steps)
    # it hands on the first entry of a list
    update_bn(([batch.to(device).data] for batch in batches), strategy.model)


def sample_gradients(context: Context, task: RelationTask) -> list[GradientSample]:
    """Gradients of single episodes against their mean, before training; on one rank.

    For the gradient noise scale of McCandlish et al., An Empirical Model of Large-Batch Training (2018). Each
    is computed twice, so that no more than two are kept.
    """
    params = task.params
    strategy = build_strategy("serial", task, step_options(params.train), context, params.parallel)
    strategy.network.train()
    plan = Plan(NOISE_EPISODES, 1)
    batches = [*islice(task.batches(plan, context, in_process=True), plan.steps)]
    mean = _gradient(strategy, batches[0]) / len(batches)
    for batch in batches[1:]:
        mean += _gradient(strategy, batch) / len(batches)
    samples = []
    for episode, batch in enumerate(batches):
        own = _gradient(strategy, batch)
        samples.append(GradientSample(episode, float(own @ own), float(own @ mean)))
    strategy.close()
    return samples


def _gradient(strategy: Strategy, batch: Batch) -> Tensor:
    """Gradient of one episode as one vector."""
    strategy.optimizer.zero_grad(set_to_none=True)
    strategy.forward_backward(batch.to(strategy.context.device))
    return torch.cat([each.flatten() for each in strategy.gradients()]).double()
