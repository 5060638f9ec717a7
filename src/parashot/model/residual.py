"""A relation head on top of cosine similarity: it learns what the angle between two images does not tell.

Chen et al., Meta-Baseline (ICCV 2021), compare images by the cosine of their mean maps, scaled by a learnable
temperature. Here the relation score is added to that, so a head starts as good as the cosine.

Cosines are of maps averaged over the fields of one or more grids, which keep where in the image something is:
the levels of Lazebnik et al., Beyond Bags of Features: Spatial Pyramid Matching (CVPR 2006). A grid of g has
g × g fields; that of 1 is the mean map, which has lost all places.

b episodes, n classes, q queries of an episode, C channels, h × w pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from parashot.model.pairing import Pairs
from parashot.model.precision import at_least_float32

FIRST_TEMPERATURE = 10.0
"""Meta-Baseline, section 4.1."""

_MOMENTUM = 0.01
"""Of the running mean, per step."""


class ResidualHead(nn.Module):
    """Scores = temperature · cosine of class and query + score of a relation head.

    Cosines are taken of mean maps less their `centre`, the running mean over training images: after a ReLU
    all vectors lie in one corner of space, and most of their cosine is that corner's. In eval mode they are
    of maps averaged over `test_grids`: a training with these made no difference.
    """

    centre: Tensor

    def __init__(self, head: nn.Module, channels: int, test_grids: Sequence[int]) -> None:
        super().__init__()
        self.head = head
        self.test_grids = test_grids
        # of one dimension, for FSDP shards no scalars
        self.log_temperature = nn.Parameter(torch.tensor([math.log(FIRST_TEMPERATURE)]))
        self.register_buffer("centre", torch.zeros(channels))

    def forward(self, pairs: Pairs) -> Tensor:
        """Scores [b q n, 1] of all pairs; in training the centre moves on."""
        scores = self.join(*self.parts(pairs))
        if self.training:  # after its use: replicas that see other images compare by the same centre
            self.move_centre(pairs.query.flatten(0, 1))
        return scores

    def parts(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Cosines and the relation head's scores, [b q n, 1] each."""
        grids = (1,) if self.training else self.test_grids
        return cosines(pairs, grids, self.centre).view(-1, 1), self.head(pairs)

    def join(self, cosine: Tensor, relation: Tensor) -> Tensor:
        """Scores of the two `parts`."""
        return self.log_temperature.exp() * cosine + relation

    def move_centre(self, maps: Tensor) -> None:
        """Let the centre follow the maps [m, C, h, w] of a step."""
        follow(self.centre, maps.mean((-2, -1)))

    @torch.no_grad()
    def begin_with_cosine(self) -> None:
        """Let the relation head say 0 of every pair, until it has learned."""
        last = [each for each in self.head.modules() if isinstance(each, nn.Linear)][-1]
        last.weight.zero_()


@torch.no_grad()
def follow(centre: Tensor, vectors: Tensor) -> None:
    """Move a running mean [d] towards that of the vectors [m, d] of a step."""
    centre.lerp_(vectors.mean(0).to(centre), _MOMENTUM)


def cosines(pairs: Pairs, grids: Sequence[int], centre: Tensor | None = None) -> Tensor:
    """Cosines [b, q, n] of the maps of classes and queries less a `centre` [C] if there is one.

    Maps are averaged over each of `grids`, and the mean of the cosines is taken; in 32 bits at least.
    """
    support, query = (
        directions(maps.flatten(0, 1), grids, centre).unflatten(0, maps.shape[:2])
        for maps in (pairs.support, pairs.query)
    )
    with torch.autocast(support.device.type, enabled=False):
        found: Tensor = query @ support.mT
    return found


def directions(maps: Tensor, grids: Sequence[int], centre: Tensor | None = None) -> Tensor:
    """Unit vectors [m, d] of maps [m, C, h, w] less a `centre` [C]; every grid has the same share of them.

    d = C · (sum of g² over the grids). The product of two is the mean, over the grids, of the cosines between
    their averages.
    """
    maps, levels = at_least_float32(maps), []  # half precision would round away what tells classes apart
    for grid in grids:
        fields = maps.mean((-2, -1))[..., None] if grid == 1 else F.adaptive_avg_pool2d(maps, grid).flatten(2)
        fields = fields if centre is None else fields - centre[:, None]
        levels.append(F.normalize(fields.flatten(1), dim=1) / len(grids) ** 0.5)
    return torch.cat(levels, dim=1)
