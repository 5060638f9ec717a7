"""Episodes of packed data as batches of steps, by any backend.

`packed` gathers uint8 pixels from the array, `resident` from the split in the device's own memory; `jpeg`
decodes, resizes and normalises every image when asked, as the study did. All read the same episodes; where
the stored size is the network's, they give the same pixels.

    b episodes · n n_way · k k_shot · q queries per episode (n_way * k_query, grouped by class) · h, w pixels
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch.utils.data import Dataset, get_worker_info

from parashot.data.episodes import Integers, draw_rows
from parashot.data.images import decode, resize_square
from parashot.data.packed import PackedSplit
from parashot.data.pixels import normalise
from parashot.params import EpisodeSpec
from parashot.task import Batch, Plan

Backend = Literal["jpeg", "packed", "resident"]

Episodes = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Support [b, n, k, 3, h, w] and query [b, q, 3, h, w], uint8 or float32 normalised, and the indices of the
episodes, int64 [b]: the data of a batch."""

DRAWN_AT_ONCE = 1024
"""Episodes of one call: for a few, calling numpy takes longer than copying their pixels."""


@dataclass
class EpisodeDataset(Dataset[Batch]):
    """Item s is this rank's batch of step s, in the host's memory; its data are `Episodes`.

    Neither arrays nor rows are sent to workers, so it is cheap with any start method.
    """

    split: PackedSplit
    spec: EpisodeSpec
    plan: Plan
    seed: int
    backend: Backend
    image_size: int

    def __post_init__(self) -> None:
        self._first = -1
        self._drawn: list[Integers] = []

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_first": -1, "_drawn": []}

    def __getitem__(self, step: int) -> Batch:
        rows = self._rows(step)
        if self.backend == "jpeg":
            images = [_load_image(self.split.encoded(int(row)), self.image_size) for row in rows]
            pixels = torch.stack(images)
        else:
            pixels = _gather(self.split, rows)
        return step_batch(pixels, self.spec, self.plan, step)

    def resident_batches(self, images: torch.Tensor, steps: Sequence[int]) -> Iterator[Batch]:
        """Yield the batch of each of `steps`, gathered where `images`, those of the split, lie."""
        for step in steps:
            places = torch.from_numpy(self._rows(step))
            if images.is_cuda:  # a copy from other memory would wait for the steps before
                places = places.pin_memory().to(images.device, non_blocking=True)
            pixels = images.index_select(0, places).movedim(-1, -3)
            yield step_batch(pixels, self.spec, self.plan, step)

    def _rows(self, step: int) -> Integers:
        """Rows int64 [m] of one step: the support images of all its episodes, then all queries.

        In this order one gather fills both. They are drawn for many steps by one call.
        """
        steps_at_once = max(1, DRAWN_AT_ONCE * self.plan.world_size // self.plan.batchsz)
        first = step - step % steps_at_once
        if first != self._first:
            steps = range(first, min(first + steps_at_once, self.plan.steps))
            self._first, self._drawn = first, self._draw([self.plan.reads(each) for each in steps])
        return self._drawn[step - first]

    def _draw(self, reads: list[range]) -> list[Integers]:
        episodes = np.concatenate([np.arange(each.start, each.stop) for each in reads])
        rows = draw_rows(self.seed, self.split.name, episodes, self.split.class_sizes, self.spec)
        steps = np.split(rows, np.cumsum([len(each) for each in reads])[:-1])
        k = self.spec.k_shot
        return [np.concatenate((step[:, :, :k].ravel(), step[:, :, k:].ravel())) for step in steps]


def step_batch(pixels: torch.Tensor, spec: EpisodeSpec, plan: Plan, step: int) -> Batch:
    """Batch of one step from its pixels [m, 3, h, w], support images of all episodes first."""
    reads = plan.reads(step)
    b, n, k = len(reads), spec.n_way, spec.k_shot
    support = pixels[: b * n * k].unflatten(0, (b, n, k))
    query = pixels[b * n * k :].unflatten(0, (b, -1))
    episodes = torch.arange(reads.start, reads.stop, device=pixels.device)
    return Batch((support, query, episodes), plan.total(step), plan.weight(step))


def _gather(split: PackedSplit, rows: Integers) -> torch.Tensor:
    """Rows [m] -> uint8 [m, 3, h, w], a view of pixels that lie channels last, by one call."""
    pixels = _empty((len(rows), *split.pixels.shape[1:]))
    torch.index_select(split.pixels, 0, torch.from_numpy(rows), out=pixels)  # by all threads torch has here
    return pixels.movedim(-1, -3)


def _empty(shape: tuple[int, ...]) -> torch.Tensor:
    """Memory for uint8 of `shape`: a worker's is shared with the process it works for, which saves a copy."""
    if get_worker_info() is None:
        return torch.empty(shape, dtype=torch.uint8)
    shared = torch.UntypedStorage._new_shared(math.prod(shape))
    return torch.empty(0, dtype=torch.uint8).set_(shared).view(shape)


def _load_image(data: bytes, image_size: int) -> torch.Tensor:
    """Decode, resize and normalise one image by itself: float32 [3, h, w]."""
    pixels = resize_square(decode(data), image_size)
    return normalise(torch.from_numpy(pixels.copy()).movedim(-1, -3))
