"""An embedding as a classifier: of one picture, without any example.

m images · C channels of a map, h × w
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from parashot.model.network import RelationNetwork
from parashot.model.relation import in_full_precision
from parashot.model.residual import ResidualHead


class LinearClassifier(nn.Module):
    """A linear layer over the mean maps of a network's embedding (Chen et al., Meta-Baseline, ICCV 2021).

    What it teaches the embedding is what the cosine of mean maps compares; the layer itself is thrown away.
    A residual head's centre follows the maps meanwhile.
    """

    def __init__(self, network: RelationNetwork, classes: int, seed: int) -> None:
        super().__init__()
        self.network = network
        self.linear = nn.Linear(network.embedding.channels, classes)
        nn.init.kaiming_normal_(self.linear.weight, generator=torch.Generator().manual_seed(seed))
        nn.init.zeros_(self.linear.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Scores [m, classes] of images [m, 3, h, w]."""
        maps = self.network.embed(images)
        head = self.network.relation
        if self.training and isinstance(head, ResidualHead):
            head.move_centre(maps)
        return in_full_precision(self.linear, maps.mean((-2, -1)))
