"""Weight initialisers by name, for convolutions and linear layers; biases are 0, batch norms the identity."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Initialiser = Callable[[Tensor, torch.Generator], Tensor]


def _kaiming(weight: Tensor, generator: torch.Generator) -> Tensor:
    """He et al., ICCV 2015: the variance of what enters a ReLU layer is kept."""
    return nn.init.kaiming_normal_(weight, nonlinearity="relu", generator=generator)


def _xavier(weight: Tensor, generator: torch.Generator) -> Tensor:
    """Glorot and Bengio, AISTATS 2010: a compromise between forward and backward variance."""
    return nn.init.xavier_uniform_(weight, generator=generator)


def _normal(weight: Tensor, generator: torch.Generator) -> Tensor:
    """One standard deviation for all layers, whatever their size."""
    return nn.init.normal_(weight, std=0.02, generator=generator)


def _orthogonal(weight: Tensor, generator: torch.Generator) -> Tensor:
    """Saxe et al., ICLR 2014: filters of a layer are orthogonal to each other."""
    return nn.init.orthogonal_(weight, generator=generator)


INITIALISERS: dict[str, Initialiser] = {
    "kaiming": _kaiming,
    "xavier": _xavier,
    "normal": _normal,
    "orthogonal": _orthogonal,
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
