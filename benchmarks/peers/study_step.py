"""A training step the study's way, in plain PyTorch.

The study embeds support and query in two passes, builds every pair, keeps images as [m, 3, h, w] in fp32,
lets glibc hand freed memory back, and descends by Adam as PyTorch has it by default. The network is ours, so
that both ways compute the same function of the same weights.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from parashot.data.pixels import normalise
from parashot.model.network import RelationNetwork, build_network
from parashot.model.pairing import Pairs
from parashot.params import Params
from parashot.task import Batch


class StudyStep:
    """Steps over one batch of uint8 pixels.

    The pixels are normalised when it is made: the study's loader does that, and loading is not timed. A step
    begins with the floats' way to `device`.
    """

    def __init__(self, params: Params, batch: Batch, device: torch.device) -> None:
        self.device = device
        self.images = [normalise(each).contiguous() for each in batch.tensors[:2]]
        self.network = build_network(replace(params.model, pairing="concat"), params.seed).to(device)
        self.optimizer = torch.optim.Adam(self.network.parameters(), params.train.learning_rate)

    def __call__(self) -> Tensor:
        """Do one optimizer step; returns its loss [], without a graph."""
        support, query = (each.to(self.device) for each in self.images)
        self.optimizer.zero_grad()
        loss = squared_error(two_passes(self.network, support, query))
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def two_passes(network: RelationNetwork, support: Tensor, query: Tensor) -> Tensor:
    """Scores [b, q, n]: support and query are embedded one after the other, each with its own statistics."""
    support_maps = network.embed(support.flatten(0, 2)).unflatten(0, support.shape[:3])
    query_maps = network.embed(query.flatten(0, 1)).unflatten(0, query.shape[:2])
    scores: Tensor = network.relation(_PlainPairs(support_maps.sum(2), query_maps))
    return scores.view(*query_maps.shape[:2], -1)


class _PlainPairs(Pairs):
    """Every pair built once as [b q n, 2C, h, w], in this order in memory; our own are channels last."""

    def __init__(self, support: Tensor, query: Tensor) -> None:
        super().__init__(support, query)
        left = support.unsqueeze(1).expand(-1, query.shape[1], -1, -1, -1, -1)
        right = query.unsqueeze(2).expand(-1, -1, support.shape[1], -1, -1, -1)
        self.maps = torch.cat((left, right), dim=3).flatten(0, 2)

    def convolve(self, conv: nn.Conv2d) -> Tensor:
        """Return the convolved pairs; see `Pairs`."""
        maps: Tensor = conv(self.maps)
        return maps


def squared_error(scores: Tensor) -> Tensor:
    """Squared error of the relation against 1 for the same class and 0 otherwise: [b, q, n] to []."""
    b, q, n = scores.shape
    same_class = torch.eye(n, device=scores.device).repeat_interleave(q // n, dim=0)
    return F.mse_loss(scores.sigmoid(), same_class.expand(b, q, n))
