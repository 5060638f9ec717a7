"""Images compared by how the channels of their maps depend on each other.

Xie et al., Joint Distribution Matters: Deep Brownian Distance Covariance for Few-Shot Classification (CVPR
2022). Each pair of channels has one number: how far apart they are over the places of the map, less the means
of both. It is second-order, as a covariance is, but also sees what is not linear.

b episodes, n classes, k support images per class, q queries of an episode, C channels, h × w pixels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from parashot.model.precision import at_least_float32
from parashot.model.residual import FIRST_TEMPERATURE, directions, follow

_LEAST = 1e-5
"""Added to squared distances: a root has no slope at 0."""

_WINDOW = 0.625
"""Side of a window over that of the map."""

_GRID = 3
"""Fields along each side."""


class BrownianHead(nn.Module):
    """Scores = temperature · cosine of the descriptions of class and query.

    That of a class is the mean of its images'. In training, an image is described by its distance matrix,
    less the `joint_centre`, which follows. In eval mode two more unit vectors know something of where in the
    image a thing is: the mean of the matrices of four windows of the map, and the means of the map over the
    fields of a grid. The `window_centre` is 0 until `measure_centres` (tasks/evaluation.py) sets all three.
    """

    centre: Tensor
    joint_centre: Tensor
    window_centre: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        # of one dimension, for FSDP shards no scalars
        self.log_temperature = nn.Parameter(torch.tensor([math.log(FIRST_TEMPERATURE)]))
        self.register_buffer("centre", torch.zeros(channels))
        self.register_buffer("joint_centre", torch.zeros(channels * channels))
        self.register_buffer("window_centre", torch.zeros(channels * channels))

    def forward(self, support_maps: Tensor, query_maps: Tensor) -> Tensor:
        """Scores [b, q, n] of maps [b, n, k, C, h, w] and [b, q, C, h, w]; in training the centres move."""
        with torch.autocast(query_maps.device.type, enabled=False):
            matrices = distances(query_maps)
            support = self._described(support_maps, distances(support_maps))
            query = self._described(query_maps, matrices)
            scores: Tensor = query @ F.normalize(support.mean(2), dim=-1).mT
            scores = self.log_temperature.exp() * scores
        if self.training:  # after their use: replicas that see other images compare by the same centres
            self.move_centres(query_maps.flatten(0, 1), matrices.flatten(0, 1))
        return scores

    def move_centres(self, maps: Tensor, matrices: Tensor) -> None:
        """Let the centres follow the maps [m, C, h, w] of a step and their distances [m, C²]."""
        follow(self.centre, maps.mean((-2, -1)))
        follow(self.joint_centre, matrices)

    def _described(self, maps: Tensor, matrices: Tensor) -> Tensor:
        """Unit vectors [..., d] of maps [..., C, h, w] and their distances [..., C²]."""
        whole = F.normalize(matrices - self.joint_centre, dim=-1)
        if self.training:
            return whole
        windows = torch.zeros_like(whole)
        for window in _windows(maps):
            windows += F.normalize(distances(window) - self.window_centre, dim=-1)
        fields = directions(maps.flatten(0, -4), (_GRID,), self.centre).unflatten(0, maps.shape[:-3])
        return torch.cat((whole, F.normalize(windows, dim=-1), fields), dim=-1) / math.sqrt(3)


def distances(maps: Tensor) -> Tensor:
    """Distances [..., C²] of channels over the places of maps [..., C, h, w]; rows and columns of mean 0.

    In 32 bits at least, for squares of nearly equal numbers are subtracted.
    """
    channels = at_least_float32(maps).flatten(-2)
    with torch.autocast(maps.device.type, enabled=False):
        products = channels @ channels.mT / channels.shape[-1]
    squares = products.diagonal(dim1=-2, dim2=-1)
    apart = (squares[..., :, None] + squares[..., None, :] - 2 * products).clamp_min(0)
    roots = (apart + _LEAST).sqrt()
    rows = roots.mean(-1)  # and of columns: the matrix is symmetric
    centred = roots - rows[..., :, None] - rows[..., None, :] + rows.mean(-1)[..., None, None]
    return centred.flatten(-2)


def window_distances(maps: Tensor) -> Tensor:
    """Mean distances [m, C²] of the four windows of maps [m, C, h, w]."""
    return torch.stack([distances(window) for window in _windows(maps)]).mean(0)


def _windows(maps: Tensor) -> Iterator[Tensor]:
    """Parts [..., C, h', w'] of maps [..., C, h, w], one in each corner; large ones overlap."""
    height, width = (max(1, round(_WINDOW * side)) for side in maps.shape[-2:])
    for rows in (slice(height), slice(-height, None)):
        for columns in (slice(width), slice(-width, None)):
            yield maps[..., rows, columns]
