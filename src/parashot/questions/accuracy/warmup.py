"""Is a warm-up of the learning rate needed, and for very large batches alone?

Each size trains the same episodes, at a rate that grows with the batch, with and without a warm-up (Goyal et
al., Accurate, Large Minibatch SGD, 2017, section 2.2), with several seeds. One network is trained after the
other, each on all of this machine's cores or one GPU.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from parashot.parallel.abilities import check_options
from parashot.parallel.context import Context, resolve_placement
from parashot.parallel.launch import launch
from parashot.parallel.registry import build_strategy, step_options
from parashot.params import Params
from parashot.progress import Progress
from parashot.questions.accuracy.records import WarmupResults, WarmupRun
from parashot.questions.runs import Setting, Stage
from parashot.records import Provenance
from parashot.task import Plan
from parashot.tasks.relation import RelationTask
from parashot.train.loop import train_steps

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WarmupAccuracy:
    """Mean validation accuracy over the seeds of one setting."""

    val_accuracy_mean: float
    learning_rate: float


def study_warmup(params: Params, packed: Path, out: Path, provenance: Provenance) -> None:
    """Run the study of `params.warmup_study` and write `out`."""
    stage = Stage("warm-up", "warmup", provenance)
    placement = resolve_placement(params.parallel).on_all_cores()
    check_options(step_options(params.train), placement.device_type)
    trained = launch(_train_all, placement, 1, params, packed) or []
    stage.write(out, WarmupResults(tuple(trained)), [*_settings(trained)])


def _train_all(context: Context, params: Params, packed: Path) -> list[WarmupRun]:
    """Train every size with and without a warm-up; a seed draws first weights and episodes of its own."""
    study = params.warmup_study
    settings = [*itertools.product(range(study.seeds), sorted(study.sizes), (False, True))]
    progress = Progress("warmup", len(settings), "training")
    runs: list[WarmupRun] = []
    for seed, size, warm in settings:
        steps = Plan(study.episodes, size).steps
        warmup_steps = max(1, round(study.warmup_share * steps)) if warm else 0
        train = params.train.of_size(size, study.episodes, lr_scaling="linear", warmup_steps=warmup_steps)
        task = RelationTask(params, packed).with_params(train=train).with_seed(params.seed + seed)
        runs.append(_train(context, task))
        progress(len(runs))
    return runs


def _train(context: Context, task: RelationTask) -> WarmupRun:
    params, train = task.params, task.params.train
    strategy = build_strategy("serial", task, step_options(train), context, params.parallel)
    plan = strategy.plan(task.items, task.batchsz, context)
    name = f"batchsz {train.batchsz}, seed {params.seed}"
    train_steps(strategy, task.batches(plan, context), plan, name=name)
    accuracy = float(task.validate(strategy.whole_network(), context, last=True).mean())
    strategy.close()
    said = "warmup: batchsz %d, %d steps of warm-up, seed %d: %.2f%%"
    log.info(said, train.batchsz, train.warmup_steps, params.seed, 100 * accuracy)
    full_rate = task.full_learning_rate
    return WarmupRun(train.batchsz, params.seed, train.warmup_steps, plan.steps, full_rate, accuracy)


def _settings(trained: Sequence[WarmupRun]) -> Iterator[Setting]:
    for size, warm in sorted({(each.batchsz, each.warmup_steps) for each in trained}):
        mine = [each for each in trained if (each.batchsz, each.warmup_steps) == (size, warm)]
        accuracies = [each.val_accuracy for each in mine]
        row = WarmupAccuracy(sum(accuracies) / len(accuracies), mine[0].learning_rate)
        options = {"batchsz": size, "warmup_steps": warm, "steps": mine[0].steps}
        yield Setting(f"batchsz{size}_warmup{warm}", options, row, {"val_accuracy": accuracies})
