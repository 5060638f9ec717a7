"""What a training minimises and how it descends, from params."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from parashot.model.losses import LOSSES, accuracy
from parashot.parallel.strategy import MakeOptimizer, Objective
from parashot.params import Params


def build_objective(params: Params) -> Objective:
    """The loss by its name, with accuracy beside it."""
    return Objective(LOSSES[params.train.loss], accuracy, params.model.image_size)


def optimizer_maker(params: Params) -> MakeOptimizer:
    """A maker rather than an optimizer: strategies place parameters first."""

    def make(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=params.train.learning_rate)

    return make
