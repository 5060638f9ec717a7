"""What a training minimises and how it descends, from params."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import nn

from parashot.data.augment import Augmentation
from parashot.model.losses import LOSSES, accuracy
from parashot.parallel.inputs import Inputs
from parashot.parallel.strategy import MakeOptimizer, Objective
from parashot.params import Params


def build_objective(params: Params) -> Objective:
    """The loss by its name, with accuracy beside it; a precision that is still open is fp32."""
    augment = params.augment
    inputs = Inputs(
        params.model.image_size,
        bfloat16=params.train.precision == "bf16",
        augmentation=Augmentation(augment.crop, augment.flip, augment.jitter),
        seed=params.seed,
    )
    return Objective(LOSSES[params.train.loss], accuracy, inputs, params.train.accumulate)


def optimizer_maker(params: Params) -> MakeOptimizer:
    """A maker rather than an optimizer: strategies place parameters first."""

    def make(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        # one pass over each parameter and its moments, where a plain one takes a dozen
        return torch.optim.Adam(parameters, lr=params.train.learning_rate, fused=True)

    return make


def learning_rates(params: Params, steps: int) -> Callable[[int], float]:
    """Learning rate of each of `steps` steps, by `train.schedule`.

    cosine: half a cosine from the full rate to 0 (Loshchilov and Hutter, ICLR 2017, without restarts).
    """
    full = params.train.learning_rate
    if params.train.schedule == "constant":
        return lambda step: full
    return lambda step: full * 0.5 * (1 + math.cos(math.pi * step / steps))
