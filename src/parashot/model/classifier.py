"""An embedding as a classifier: of one picture, without any example.

m images · C channels of a map, h × w
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from parashot.model.brownian import BrownianHead, distances
from parashot.model.network import RelationNetwork
from parashot.model.precision import in_full_precision
from parashot.model.residual import FIRST_TEMPERATURE, ResidualHead

_JOINT_LENGTH = 64.0
"""First length of the directions that classify by distance matrices."""

_DROPPED_BLOCKS = 2
"""Blocks of the embedding, the last ones, whose maps are dropped in part (Lee et al., CVPR 2019)."""

Drop = Callable[[Tensor, Tensor], Tensor]
"""Drops a part of maps [m, C, h, w] as the images' keys [m] say."""

ROTATIONS = 4
"""Rotations of an image: by 0, 90, 180 and 270 degrees."""


class CosineLayer(nn.Module):
    """Scores = temperature · cosine of a vector and a direction per class.

    Chen et al., A Closer Look at Few-shot Classification (ICLR 2019), Baseline++.
    """

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(classes, channels))
        self.temperature = nn.Parameter(torch.tensor([FIRST_TEMPERATURE]))

    def forward(self, vectors: Tensor) -> Tensor:
        """Scores [m, classes] of vectors [m, C]."""
        return self.temperature * F.linear(F.normalize(vectors, dim=1), F.normalize(self.weight, dim=1))


class ImageClassifier(nn.Module):
    """A layer over the mean maps of a network's embedding (Chen et al., Meta-Baseline, ICCV 2021).

    It teaches the embedding what the cosine of mean maps compares, and is thrown away. Meanwhile the head's
    centres follow the maps. Where the head is a `BrownianHead`, a cosine layer over what that compares learns
    beside the first. With `rotation`, another one says how an image was rotated (Gidaris et al., Boosting
    Few-Shot Visual Learning with Self-Supervision, ICCV 2019).
    In training, and given keys, `drop` takes a part of what the last two blocks of the embedding give.
    """

    def __init__(
        self, network: RelationNetwork, classes: int, seed: int, *, rotation: bool, drop: Drop
    ) -> None:
        super().__init__()
        self.network = network
        self.drop = drop
        generator = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng(devices=[]):  # a layer draws first weights when it is made
            self.layer = nn.Linear(network.embedding.channels, classes)
            self.rotation = nn.Linear(network.embedding.channels, ROTATIONS) if rotation else None
            joint = isinstance(network.relation, BrownianHead)
            self.joint = CosineLayer(network.embedding.channels**2, classes) if joint else None
        for each in (self.layer, self.rotation):
            if each is not None:
                nn.init.kaiming_normal_(each.weight, generator=generator)
                nn.init.zeros_(each.bias)
        if self.joint is not None:
            # as long for any number of channels: the longer a direction, the slower it turns
            std = _JOINT_LENGTH / network.embedding.channels
            nn.init.normal_(self.joint.weight, std=std, generator=generator)

    def forward(self, images: Tensor, keys: Tensor | None) -> Tensor:
        """Scores of images [m, 3, h, w], with keys [m]: those of each layer, side by side.

        [m, classes]; with a `BrownianHead` as many again; with `rotation` 4 more.
        """
        maps = self._embed(images, keys)
        vectors = maps.mean((-2, -1))
        scores = [in_full_precision(self.layer, vectors)]
        head = self.network.relation
        if isinstance(head, BrownianHead) and self.joint is not None:
            matrices = distances(maps)
            scores.append(in_full_precision(self.joint, matrices - head.joint_centre))
            if self.training:
                head.move_centres(maps, matrices)
        elif self.training and isinstance(head, ResidualHead):
            head.move_centre(maps)
        if self.rotation is not None:
            scores.append(in_full_precision(self.rotation, vectors))
        return torch.cat(scores, dim=1)

    def _embed(self, images: Tensor, keys: Tensor | None) -> Tensor:
        if keys is None or not self.training:
            return self.network.embed(images)
        blocks = self.network.embedding
        maps = images
        for number, block in enumerate(blocks, start=1):
            maps = block(maps)
            if number > len(blocks) - _DROPPED_BLOCKS:
                maps = self.drop(maps, keys + number)  # each block with squares of its own
        return maps
