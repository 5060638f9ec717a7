"""Weight initialisers by name, for convolutions and linear layers; biases are 0, batch norms the identity."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Initialiser = Callable[[Tensor, torch.Generator], Tensor]


INITIALISERS: dict[str, Initialiser] = {
    # He et al., ICCV 2015: the variance of what enters a ReLU layer is kept
    "kaiming": lambda weight, g: nn.init.kaiming_normal_(weight, nonlinearity="relu", generator=g),
    # Glorot and Bengio, AISTATS 2010: a compromise between forward and backward variance
    "xavier": lambda weight, g: nn.init.xavier_uniform_(weight, generator=g),
    # one standard deviation for all layers, whatever their size
    "normal": lambda weight, g: nn.init.normal_(weight, std=0.02, generator=g),
    # Saxe et al., ICLR 2014: filters of a layer are orthogonal to each other
    "orthogonal": lambda weight, g: nn.init.orthogonal_(weight, generator=g),
}
"""By the name of `model.init`."""


def initialise(network: nn.Module, name: str, generator: torch.Generator) -> None:
    """Set all weights of `network` anew, in the order of its modules, with numbers of `generator` alone."""
    fill = INITIALISERS[name]
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            fill(module.weight, generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d):
            module.reset_parameters()
