"""Images compared by how the channels of their maps depend on each other.

Xie et al., Joint Distribution Matters: Deep Brownian Distance Covariance for Few-Shot Classification (CVPR
2022). A mean map keeps one number of each channel; here a pair of channels has one: how far apart they are
over the places of the map, less the means of both. It is second-order, as a covariance is, but also sees
what is not linear.

b episodes, n classes, k support images per class, q queries of an episode, C channels, h × w pixels.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from parashot.model.residual import FIRST_TEMPERATURE, follow

_LEAST = 1e-5
"""Added to squared distances: a root has no slope at 0."""


class BrownianHead(nn.Module):
    """Scores = temperature · cosine of the distance matrices of class and query, less their `joint_centre`.

    A class is the mean of its support images' matrices. `centre` is that of mean maps: scores do not depend
    on it, but the cosine of the same maps does, which they are compared with.
    """

    centre: Tensor
    joint_centre: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        # of one dimension, for FSDP shards no scalars
        self.log_temperature = nn.Parameter(torch.tensor([math.log(FIRST_TEMPERATURE)]))
        self.register_buffer("centre", torch.zeros(channels))
        self.register_buffer("joint_centre", torch.zeros(channels * channels))

    def forward(self, support_maps: Tensor, query_maps: Tensor) -> Tensor:
        """Scores [b, q, n] of maps [b, n, k, C, h, w] and [b, q, C, h, w]; in training the centres move."""
        with torch.autocast(query_maps.device.type, enabled=False):
            support, query = distances(support_maps), distances(query_maps)
            classes = F.normalize(support.mean(2) - self.joint_centre, dim=-1)
            scores: Tensor = F.normalize(query - self.joint_centre, dim=-1) @ classes.mT
            scores = self.log_temperature.exp() * scores
        if self.training:  # after their use: replicas that see other images compare by the same centres
            self.move_centres(query_maps.flatten(0, 1), query.flatten(0, 1))
        return scores

    def move_centres(self, maps: Tensor, matrices: Tensor) -> None:
        """Let the centres follow the maps [m, C, h, w] of a step and their distances [m, C²]."""
        follow(self.centre, maps.mean((-2, -1)))
        follow(self.joint_centre, matrices)


def distances(maps: Tensor) -> Tensor:
    """Distances [..., C²] of channels over the places of maps [..., C, h, w]; rows and columns of mean 0.

    In 32 bits at least, for squares of nearly equal numbers are subtracted.
    """
    maps = maps if maps.dtype.itemsize > 2 else maps.float()
    channels = maps.flatten(-2)
    products = channels @ channels.mT / channels.shape[-1]
    squares = products.diagonal(dim1=-2, dim2=-1)
    apart = (squares[..., :, None] + squares[..., None, :] - 2 * products).clamp_min(0)
    roots = (apart + _LEAST).sqrt()
    rows = roots.mean(-1)  # and of columns: the matrix is symmetric
    centred = roots - rows[..., :, None] - rows[..., None, :] + rows.mean(-1)[..., None, None]
    return centred.flatten(-2)
