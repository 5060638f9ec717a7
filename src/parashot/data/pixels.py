"""Pixels on their way into the network: resized where they are, normalised in as few passes as can be."""

from __future__ import annotations

from functools import cache

import torch
from torch.nn import functional as F

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
"""Per-channel statistics of ImageNet, as torchvision's models use them."""


def prepare(images: torch.Tensor, image_size: int) -> torch.Tensor:
    """Bring images [..., 3, h, w], where they are, to `image_size` and to normalised float32.

    What the `jpeg` backend has resized and normalised passes through unchanged.
    """
    if images.dtype.is_floating_point:
        return images
    return normalise(resize(images, image_size))


def resize(images: torch.Tensor, image_size: int) -> torch.Tensor:
    """Bring pixels [..., 3, h, w] to squares of `image_size`, bilinear with antialiasing.

    Images of that size pass through as they are, others become float32.
    """
    if images.shape[-2:] == (image_size, image_size):
        return images
    flat = F.interpolate(
        images.to(torch.float32).flatten(0, -4),
        size=(image_size, image_size),
        mode="bilinear",
        antialias=True,
        align_corners=False,
    )
    resized: torch.Tensor = flat.unflatten(0, images.shape[:-3])
    return resized


def normalise(pixels: torch.Tensor) -> torch.Tensor:
    """Turn pixels [..., 3, h, w] of 0..255 into float32 of zero mean and unit variance over ImageNet.

    The result lies in memory as [..., h, w, 3]. Each image is one row that meets a row of scales: with a
    scale per channel the inner loop would be 3 numbers long, and on a CPU five times slower.
    """
    *outer, _, height, width = pixels.shape
    scale, shift = _affine(height * width, pixels.device)
    rows = pixels.movedim(-3, -1).reshape(-1, 3 * height * width)
    values = rows.to(torch.float32, copy=True).mul_(scale).add_(shift)
    return values.view(*outer, height, width, 3).movedim(-1, -3)


@cache
def _affine(area: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale and shift of [h, w, 3] in a row, once per device: copying them to a GPU makes it wait."""
    mean, std = torch.tensor(MEAN, dtype=torch.float64), torch.tensor(STD, dtype=torch.float64)
    scale, shift = 1 / (255 * std), -mean / std
    rows = (each.to(torch.float32).repeat(area).to(device) for each in (scale, shift))
    return next(rows), next(rows)
