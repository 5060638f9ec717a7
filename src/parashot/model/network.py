"""The Relation Network (Sung et al., CVPR 2018): a query belongs to the class it is most related to.

b episodes, n classes (n_way), k support images per class (k_shot), q = n k_query queries of an episode,
m images, C channels of a map, h × w pixels. Scores are relation scores before the sigmoid.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import torch
from torch import Tensor, nn

from parashot.model.brownian import BrownianHead
from parashot.model.calibration import Calibration
from parashot.model.embeddings import EMBEDDINGS
from parashot.model.norm import norm_by_groups
from parashot.model.pairing import PAIRINGS, Pairs, choose_pairing
from parashot.model.relation import HEADS, ConvHead
from parashot.model.residual import ResidualHead, cosines
from parashot.params import EpisodeSpec, ModelParams


class RelationNetwork(nn.Module):
    """Embedding and head: a function of images; it knows no device, rank, label or loss, keeps nothing."""

    def __init__(self, params: ModelParams) -> None:
        super().__init__()
        self.params = params
        self.embedding = EMBEDDINGS[params.embedding]()
        self.relation = _build_head(params, self.embedding.channels)
        self.test_size = params.test_size or params.image_size  # pixels; its layers take others too
        self.calibration: Calibration | None = None
        """How scores become probabilities; None: it was not measured."""

    def forward(self, support: Tensor, query: Tensor) -> Tensor:
        """Scores [b, q, n] of support [b, n, k, 3, h, w] and query [b, q, 3, h, w].

        All images pass the embedding at once; batch norm sees them together, or as `norm_by_episodes` says.
        """
        maps = self.embed(all_images(support, query))
        return self.relate(*maps_of_episodes(maps, *support.shape[:3]))

    def norm_by_episodes(self, spec: EpisodeSpec) -> None:
        """Let batch norm take `norm_episodes` episodes of this shape at a time while it trains; 0: all."""
        norm_by_groups(self.embedding, self.params.norm_episodes * spec.images)
        norm_by_groups(self.relation, self.params.norm_episodes * spec.n_way**2 * spec.k_query)

    def embed(self, images: Tensor) -> Tensor:
        """Maps [m, C, h', w'] of images [m, 3, h, w]."""
        maps: Tensor = self.embedding(images)
        return maps

    def relate(self, support_maps: Tensor, query_maps: Tensor) -> Tensor:
        """Scores [b, q, n] of support maps [b, n, k, C, h', w'] and query maps [b, q, C, h', w']."""
        if isinstance(self.relation, BrownianHead):
            found: Tensor = self.relation(support_maps, query_maps)
            return found
        (b, n), q = support_maps.shape[:2], query_maps.shape[1]
        scores: Tensor = self.relation(self._pairs(support_maps, query_maps))
        return scores.view(b, q, n)

    def cosine(self, support_maps: Tensor, query_maps: Tensor) -> Tensor:
        """Cosines [b, q, n] of the same maps as for `relate`: what the embedding alone says."""
        centre = self.relation.centre if isinstance(self.relation, ResidualHead | BrownianHead) else None
        return cosines(self._pairs(support_maps, query_maps), self.params.test_grids, centre)

    def judge(self, support_maps: Tensor, query_maps: Tensor) -> Tensor:
        """Scores of `relate`, cosines of the same maps, scores of the relation head alone: [b, 3, q, n]."""
        if isinstance(self.relation, ResidualHead):
            cosine, alone = self.relation.parts(self._pairs(support_maps, query_maps))
            scores = self.relation.join(cosine, alone)
        else:
            cosine = self.cosine(support_maps, query_maps)
            alone = scores = self.relate(support_maps, query_maps)
        b, q = query_maps.shape[:2]
        parts = [each.to(scores.dtype).view(b, q, -1) for each in (scores, cosine, alone)]
        return torch.stack(parts, dim=1)

    def compared_bytes(self, one_map: Tensor, n: int) -> int:
        """Bytes that `relate` takes for an image of map [C, h, w] and n classes, without a head's layers."""
        if isinstance(self.relation, BrownianHead):
            return 8 * self.relation.joint_centre.nbytes  # four to make a matrix, and what is kept
        return 2 * n * one_map.nbytes

    def _pairs(self, support_maps: Tensor, query_maps: Tensor) -> Pairs:
        """Every class of support maps [b, n, k, C, h', w'] with every query of [b, q, C, h', w']."""
        (n, k), q = support_maps.shape[1:3], query_maps.shape[1]
        total = reduce(torch.add, support_maps.unbind(2))  # unlike sum(2), it keeps the memory format
        classes = total / k if self.params.shots == "mean" else total
        pairing = choose_pairing(n, q) if self.params.pairing == "auto" else self.params.pairing
        return PAIRINGS[pairing](classes, query_maps)


def _build_head(params: ModelParams, channels: int) -> nn.Module:
    if params.head == "bdc":
        return BrownianHead(channels)
    head = HEADS.get(params.embedding, ConvHead)(channels)
    return ResidualHead(head, channels, params.test_grids) if params.head == "residual" else head


def all_images(support: Tensor, query: Tensor) -> Tensor:
    """Images [m, 3, h, w] of support [b, n, k, 3, h, w] and query [b, q, 3, h, w]; m = b (n k + q).

    One episode after another, in memory as channels last.
    """
    episodes = torch.cat((support.flatten(1, 2).movedim(2, 4), query.movedim(2, 4)), dim=1)
    return episodes.flatten(0, 1).movedim(3, 1)


def maps_of_episodes(maps: Tensor, b: int, n: int, k: int) -> tuple[Tensor, Tensor]:
    """Support maps [b, n, k, C, h, w] and query maps [b, q, C, h, w] of maps in the order of `all_images`."""
    episodes = maps.unflatten(0, (b, -1))
    return episodes[:, : n * k].unflatten(1, (n, k)), episodes[:, n * k :]


class EpisodeModel(nn.Module):
    """A Relation Network whose input is one array: an episode's support, class by class, then its queries."""

    def __init__(self, network: RelationNetwork, n_way: int, k_shot: int) -> None:
        super().__init__()
        self.network = network
        self.n_way, self.k_shot = n_way, k_shot

    def forward(self, episode: Tensor) -> Tensor:
        """Scores [b, q, n] of episodes [b, n k + q, 3, h, w]."""
        supports = self.n_way * self.k_shot
        support = episode[:, :supports].view(-1, self.n_way, self.k_shot, *episode.shape[2:])
        scores: Tensor = self.network(support, episode[:, supports:])
        return scores


def build_network(params: ModelParams, seed: int) -> RelationNetwork:
    """Build a network on the CPU, its weights a function of `seed`; torch's random state stays as it is."""
    with torch.random.fork_rng(devices=[]):  # modules draw first weights when they are made
        network = RelationNetwork(params)
    initialise(network, params.init, torch.Generator().manual_seed(seed))
    if isinstance(network.relation, ResidualHead):
        network.relation.begin_with_cosine()
    return network


INITIALISERS: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    # He et al., ICCV 2015: the variance of what enters a ReLU layer is kept
    "kaiming": lambda weight, g: nn.init.kaiming_normal_(weight, nonlinearity="relu", generator=g),
    # Glorot and Bengio, AISTATS 2010: a compromise between forward and backward variance
    "xavier": lambda weight, g: nn.init.xavier_uniform_(weight, generator=g),
}
"""Weight initialisers by the name of `model.init`."""


def initialise(network: nn.Module, name: str, generator: torch.Generator) -> None:
    """Set all weights of `network` anew, in the order of its modules, with numbers of `generator` alone.

    Biases become 0, batch norms the identity.
    """
    fill = INITIALISERS[name]
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            fill(module.weight, generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d):
            module.reset_parameters()
