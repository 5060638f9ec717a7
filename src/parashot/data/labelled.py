"""Batches of labelled images: every epoch all of a split, in an order of its own.

The order is a pure function of (seed, split, epoch), as episodes are of their index, so a training that was
killed goes on with the images that came next.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import torch

from parashot.data.episodes import IMAGE_ORDER, Integers, SplitName, episode_keys, uniforms
from parashot.data.packed import PackedSplit, resident_images
from parashot.errors import DataError, DeviceError
from parashot.task import Batch, Plan

LabelledImages = tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]
"""Images uint8 [m, 3, h, w], their classes int64 [m], their indices in the plan int64 [m], and the step."""


def steps_per_epoch(class_sizes: Integers, batchsz: int) -> int:
    """Whole batches of a split; images that fill none are left to another epoch.

    Raises `DataError` where the split does not fill one batch.
    """
    images = int(class_sizes.sum())
    if batchsz > images:
        raise DataError(f"pretrain.batchsz: {batchsz}, but the split has {images} images; lower it to that")
    return images // batchsz


def labelled_batches(
    split: PackedSplit, seed: int, plan: Plan, device: torch.device, first: int = 0
) -> Iterator[Batch]:
    """Yield this rank's batches of `plan` from step `first` on, on the device.

    An epoch has `steps_per_epoch` steps; the plan may end within one.
    """
    pixels = split.pixels
    if device.type == "cuda":
        with suppress(DeviceError):  # a split that does not fit there is gathered from the host's memory
            pixels = resident_images(split, device)
    sizes = split.class_sizes
    labels = torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes)).to(device)
    epoch_steps = steps_per_epoch(sizes, plan.batchsz)
    for epoch in range(first // epoch_steps, -(-plan.steps // epoch_steps)):
        order = image_order(seed, split.name, len(labels), epoch).to(device)
        begin = epoch * epoch_steps
        for step in range(max(begin, first), min(begin + epoch_steps, plan.steps)):
            reads = plan.reads(step)
            rows = order[reads.start - begin * plan.batchsz : reads.stop - begin * plan.batchsz]
            indices = torch.arange(reads.start, reads.stop, device=device)
            images = pixels.index_select(0, rows.to(pixels.device)).to(device)
            data = (images.movedim(-1, -3), labels[rows], indices, step)
            yield Batch(data, plan.total(step), plan.weight(step))


def image_order(seed: int, split: SplitName, images: int, epoch: int) -> torch.Tensor:
    """Every row of a split once: int64 [images]."""
    key = episode_keys(seed, split, torch.tensor([epoch]), IMAGE_ORDER)
    return uniforms(key, images)[0].argsort(stable=True)
