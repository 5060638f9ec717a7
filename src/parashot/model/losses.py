"""Losses by name, and accuracy. The target is a query's position: queries are grouped by class.

b episodes, n classes, q = n k_query queries of an episode. Scores [b, q, n] are relation scores before the
sigmoid; query j belongs to class j // (q / n). Each function returns one value per episode, [b], so that a
replica's share of a batch can be weighted. Scores of less than 32 bits are computed with 32.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from parashot.model.precision import at_least_float32


def mse(scores: Tensor) -> Tensor:
    """Squared error of the relation against 1 for the same class and 0 otherwise, mean over q and n; [b]."""
    relation = at_least_float32(scores).sigmoid()
    same_class = F.one_hot(class_of_queries(scores), scores.shape[2])
    return (relation - same_class).square().mean((1, 2))


def cross_entropy(scores: Tensor) -> Tensor:
    """Cross-entropy over the classes, mean over q; [b]."""
    log_probabilities = at_least_float32(scores).log_softmax(2)
    classes = class_of_queries(scores).expand(scores.shape[0], -1)
    return -log_probabilities.gather(2, classes.unsqueeze(2)).mean((1, 2))


def accuracy(scores: Tensor) -> Tensor:
    """Fraction of an episode's queries whose best score is at their own class; [b], without a graph."""
    return (scores.detach().argmax(2) == class_of_queries(scores)).float().mean(1)


def class_of_queries(scores: Tensor) -> Tensor:
    """Class positions [q] of the queries of `scores`, as many of each class."""
    _, queries, n_way = scores.shape
    return torch.arange(n_way, device=scores.device).repeat_interleave(queries // n_way)


LOSSES: dict[str, Callable[[Tensor], Tensor]] = {"mse": mse, "cross_entropy": cross_entropy}
"""By the name of `train.loss`."""
