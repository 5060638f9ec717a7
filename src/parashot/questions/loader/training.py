"""The loader inside the step: seconds of a training step by backend and workers, on the same cores.

All replicas train by DDP, each rank with its share of the workers; where there is one replica, or no DDP, one
process trains on all cores or one GPU. Settings of a round run in random order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean

import torch

from parashot.data.episode_dataset import Backend
from parashot.hardware import usable_threads
from parashot.parallel.context import Context, Placement, control_group, resolve_placement, wait_for_all
from parashot.parallel.exchange import from_all_ranks
from parashot.parallel.launch import launch
from parashot.parallel.registry import STRATEGIES, build_strategy, step_options, unsupported_reason
from parashot.params import AugmentParams, Params
from parashot.progress import Progress
from parashot.questions.loader.records import LoadingBlock
from parashot.questions.timed import LoadedSteps, rounds_of_launch, steps_with_loading
from parashot.tasks.relation import RelationTask

PLAIN = AugmentParams(crop=1.0, flip=False, jitter=0.0)
"""No augmentation: `jpeg` normalises images before any could be done, and all do equal work."""


@dataclass(frozen=True)
class Trainer:
    """What trains while batches are loaded."""

    strategy: str
    placement: Placement

    @property
    def processes(self) -> int:
        """Processes that train."""
        return STRATEGIES[self.strategy].processes(self.placement.replicas)

    @classmethod
    def of(cls, params: Params, packed: Path) -> Trainer:
        """DDP on all replicas where it can run here, else one replica."""
        placement = resolve_placement(params.parallel)
        fitted = placement.for_batch(params.train.batchsz)
        task, options = RelationTask(params, packed), step_options(params.train)
        reason = params.parallel.switched_off("ddp") or unsupported_reason(
            "ddp", task, options, fitted, params.parallel, torch.cuda.device_count()
        )
        if fitted.replicas > 1 and not reason:
            return cls("ddp", fitted)
        return cls("serial", placement.on_all_cores())


def settings_in_training(params: Params, ranks: int) -> list[tuple[Backend, int]]:
    """Backends and workers of the grid; `auto`: 0, one for each rank, T/2 and T of T hardware threads.

    More than T would take turns on cores that train, and with less than a rank each some ranks had none.
    `resident` has nothing for workers to do.
    """
    bench, threads = params.loader.bench, usable_threads()
    counts: Sequence[int] = sorted({0, ranks, max(ranks, threads // 2), max(ranks, threads)})
    if bench.workers != "auto":
        counts = sorted(bench.workers)
    return [
        (backend, workers)
        for backend in bench.backends
        for workers in ([0] if backend == "resident" else counts)
    ]


def read_by(params: Params, backend: Backend, workers: int) -> Params:
    """The same params with another way of reading, and without augmentation."""
    return replace(params, augment=PLAIN, loader=replace(params.loader, backend=backend, workers=workers))


def time_in_training(params: Params, packed: Path) -> list[LoadingBlock]:
    """Time the grid as `params.parallel.bench` says; nothing on any rank of torchrun but the main one."""
    trainer = Trainer.of(params, packed)
    blocks: list[LoadingBlock] = []
    for number in range(params.parallel.bench.launches):
        found = launch(loading_rank, trainer.placement, trainer.processes, trainer, params, packed, number)
        blocks += found or []
    return blocks


def loading_rank(
    context: Context, trainer: Trainer, params: Params, packed: Path, number: int
) -> list[LoadingBlock]:
    """Time the rounds of launch `number` on one rank; the main one's clock counts."""
    bench, control = params.parallel.bench, control_group(context)
    settings = settings_in_training(params, context.world_size)
    tasks = {each: RelationTask(read_by(params, *each), packed) for each in settings}
    options = step_options(params.train)
    strategy = build_strategy(trainer.strategy, tasks[settings[0]], options, context, params.parallel)

    def timed(setting: tuple[Backend, int], steps: int) -> list[LoadedSteps]:
        """Steps of one setting, by rank."""
        wait_for_all(control)
        threads, in_advance = context.placement.threads_per_replica, setting[1] * params.loader.prefetch
        found = steps_with_loading(strategy, tasks[setting], steps, threads=threads, in_advance=in_advance)
        return from_all_ranks(found, context, control)

    # with the most workers, so that all ranks have the servers that theirs are forked from
    timed(max(settings, key=lambda each: each[1]), bench.warmup_steps)
    blocks = []
    progress = Progress("loader-bench, in training", bench.blocks, "round")
    for round_number in rounds_of_launch(bench.blocks, number, bench.launches):
        for setting in Random(round_number).sample(settings, len(settings)):  # the same order on every rank
            ranks = timed(setting, bench.steps)
            blocks.append(
                LoadingBlock(
                    launch=number,
                    round=round_number,
                    backend=setting[0],
                    workers=setting[1],
                    strategy=trainer.strategy,
                    replicas=trainer.placement.replicas,
                    steps=bench.steps,
                    seconds=ranks[0].seconds,
                    waiting_seconds=fmean(each.waiting_seconds for each in ranks),
                    memory_bytes=sum(each.memory_bytes for each in ranks),
                )
            )
        if context.is_main:
            progress(round_number + 1)
    strategy.close()
    return blocks
