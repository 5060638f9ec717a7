"""Trainings on episodes, one for each way.

Without augmentation: `jpeg` normalises images before any could be done, and all ways shall do equal work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

from parashot.data.episode_dataset import Backend
from parashot.parallel.context import resolve_placement
from parashot.parallel.registry import step_options
from parashot.params import AugmentParams, Params
from parashot.questions.ways.measure import Training, time_ways
from parashot.questions.ways.records import EpisodeWay, WayBlock
from parashot.tasks.relation import RelationTask
from parashot.train.records import computed_as


def time_episode_ways(params: Params, packed: Path, ways: Sequence[EpisodeWay], stage: str) -> list[WayBlock]:
    """Time ways as `params.parallel.bench` says."""
    placement, trainings = resolve_placement(params.parallel), partial(_training, params, packed)
    return time_ways(trainings, ways, placement, params.parallel.bench, stage)


def _training(params: Params, packed: Path, way: EpisodeWay) -> Training:
    """The Relation Network on the episodes of `packed`, read and computed in one way."""
    own = computed_as(read_by(params, cast("Backend", way.backend), way.workers), way.computing)
    return Training(RelationTask(own, packed), step_options(own.train), own.parallel, own.loader.prefetch)


def read_by(params: Params, backend: Backend, workers: int) -> Params:
    """The same params with another way of reading, and without augmentation."""
    loader = replace(params.loader, backend=backend, workers=workers)
    return replace(params, augment=AugmentParams(crop=1.0, flip=False, jitter=0.0), loader=loader)
