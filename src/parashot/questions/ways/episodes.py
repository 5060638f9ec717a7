"""Trainings on episodes, one for each way.

Without augmentation: `jpeg` normalises images before any could be done, and all ways shall do equal work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from parashot.data.episode_dataset import Backend
from parashot.parallel.context import resolve_placement
from parashot.parallel.registry import step_options
from parashot.params import AugmentParams, Params
from parashot.questions.ways.measure import Training, time_ways
from parashot.questions.ways.records import EpisodeWay, WayBlock
from parashot.tasks.relation import RelationTask
from parashot.train.choices import computed_as

PLAIN = AugmentParams(crop=1.0, flip=False, jitter=0.0)


@dataclass(frozen=True)
class EpisodeTrainings:
    """The training of params on the episodes of `packed`, in each way."""

    params: Params
    packed: Path

    def __call__(self, way: EpisodeWay) -> Training:
        """Return the Relation Network's task, read and computed in one way."""
        read = read_by(self.params, cast("Backend", way.backend), way.workers)
        params = computed_as(read, way.computing)
        in_advance = way.workers * params.loader.prefetch
        return Training(
            RelationTask(params, self.packed), step_options(params.train), params.parallel, in_advance
        )


def time_episode_ways(
    params: Params, packed: Path, ways: Sequence[EpisodeWay], stage: str
) -> list[WayBlock] | None:
    """Time ways as `params.parallel.bench` says; None on every rank of torchrun but the main one."""
    placement = resolve_placement(params.parallel)
    return time_ways(EpisodeTrainings(params, packed), ways, placement, params.parallel.bench, stage)


def read_by(params: Params, backend: Backend, workers: int) -> Params:
    """The same params with another way of reading, and without augmentation."""
    return replace(params, augment=PLAIN, loader=replace(params.loader, backend=backend, workers=workers))
