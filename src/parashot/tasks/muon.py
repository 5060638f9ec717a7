"""Muon: steps of convolutions whose singular values are all about 1.

Jordan et al., Muon: An Optimizer for Hidden Layers in Neural Networks (2024).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

_RATE = 0.1
"""Learning rate of convolutions as a multiple of that of the other parameters."""

_DECAY = 0.1
_MOMENTUM = 0.95
_ITERATIONS = 5
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the Newton-Schulz iteration: they bring singular values near 1 quickly, rather than exactly."""


class Muon(torch.optim.SGD):
    """SGD with Nesterov's momentum for vectors and linear layers, orthogonal steps for convolutions.

    A convolution [o, i, h, w] is taken as a matrix [o, i h w].
    """

    def __init__(self, network: nn.Module, lr: float, momentum: float, weight_decay: float) -> None:
        convolutions = [each for each in network.parameters() if each.ndim == 4]
        others = [each for each in network.parameters() if each.ndim != 4]
        plain = {"momentum": 0.0, "nesterov": False, "weight_decay": _DECAY, "scale": _RATE, "muon": True}
        super().__init__(
            [{"params": others, "muon": False}, {"params": convolutions, **plain}],
            lr=lr,
            momentum=momentum,
            nesterov=True,
            weight_decay=weight_decay,
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Put the orthogonal step in the place of each convolution's gradient, and let SGD take it."""
        for group in self.param_groups:
            for parameter in group["params"] if group["muon"] else ():
                if parameter.grad is not None:
                    parameter.grad.copy_(self._direction(parameter, parameter.grad))
        return super().step(closure)

    def _direction(self, parameter: Tensor, gradient: Tensor) -> Tensor:
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        momentum = state["momentum_buffer"].mul_(_MOMENTUM).add_(gradient)
        return orthogonalised((gradient + _MOMENTUM * momentum).flatten(1)).view(parameter.shape)


def orthogonalised(matrix: Tensor) -> Tensor:
    """Bring the singular values of a matrix [o, d] to about 1 (0.7 to 1.2), but for those of nearly 0."""
    a, b, c = _COEFFICIENTS
    result: Tensor = matrix / (matrix.norm() + 1e-7)
    for _ in range(_ITERATIONS):
        gram = result @ result.mT
        result = a * result + (b * gram + c * gram @ gram) @ result
    return result
