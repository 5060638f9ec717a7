"""Batches of labelled images: every epoch all of a split, in an order of its own.

The order is a pure function of (seed, split, epoch), as episodes are of their index, so a training that was
killed goes on with the images that came next.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from parashot.data.batches import Plan
from parashot.data.episodes import IMAGE_ORDER, episode_keys, uniforms
from parashot.data.packed import PackedSplit
from parashot.data.resident import ResidentSplit
from parashot.errors import DataError


class ImageBatch(NamedTuple):
    """Images of one step: uint8 [m, 3, h, w], their classes int64 [m], and the step's number."""

    images: torch.Tensor
    labels: torch.Tensor
    step: int


class LabelledImages:
    """The images of a split, in whole batches; those that fill none are another epoch's luck."""

    def __init__(self, split: PackedSplit, seed: int, batchsz: int, device: torch.device) -> None:
        """Keep the split where it is used. Raises `DataError` where it does not fill one batch."""
        sizes = split.class_sizes
        self.images, self.classes = int(sizes.sum()), len(sizes)
        if batchsz > self.images:
            raise DataError(
                f"pretrain.batchsz: {batchsz}, but split {split.name} has {self.images} images; "
                "it must be at most that"
            )
        self.split, self.seed, self.batchsz, self.device = split, seed, batchsz, device
        on_gpu = device.type == "cuda"
        self._pixels = ResidentSplit(split, device).images if on_gpu else split.pixels
        self._labels = torch.from_numpy(np.repeat(np.arange(self.classes), sizes)).to(device)

    def plan(self, epochs: int) -> Plan:
        """Steps of so many epochs; what a plan calls episodes are images here."""
        return Plan(epochs * self._steps_per_epoch * self.batchsz, self.batchsz)

    def batches(self, plan: Plan, first: int = 0) -> Iterator[ImageBatch]:
        """Yield the batches of `plan` from step `first` on, on the device."""
        for epoch in range(first // self._steps_per_epoch, plan.steps // self._steps_per_epoch):
            order = torch.from_numpy(image_order(self.seed, self.split, epoch)).to(self.device)
            start = max(first - epoch * self._steps_per_epoch, 0)
            for place in range(start, self._steps_per_epoch):
                rows = order[place * self.batchsz : (place + 1) * self.batchsz]
                images = self._pixels.index_select(0, rows).movedim(-1, -3)
                yield ImageBatch(images, self._labels[rows], epoch * self._steps_per_epoch + place)

    @property
    def _steps_per_epoch(self) -> int:
        return self.images // self.batchsz


def image_order(seed: int, split: PackedSplit, epoch: int) -> npt.NDArray[np.int64]:
    """Every row of a split once: int64 [images]."""
    key = episode_keys(seed, split.name, np.array([epoch], dtype=np.int64), IMAGE_ORDER)
    order: npt.NDArray[np.int64] = uniforms(key, int(split.class_sizes.sum()))[0].argsort(kind="stable")
    return order
