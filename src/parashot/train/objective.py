"""What a training minimises and how it descends, from params."""

from __future__ import annotations

import math
from collections.abc import Callable

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
    return Objective(
        LOSSES[params.train.loss],
        accuracy,
        inputs,
        params.train.accumulate,
        skips_nonfinite=params.train.on_nonfinite == "skip",
    )


def optimizer_maker(params: Params) -> MakeOptimizer:
    """A maker rather than an optimizer: strategies place parameters first.

    Parameters of the relation head are a group of their own, with `train.lr_relation` as its `scale`.
    """
    head_scale = params.train.lr_relation

    def make(network: nn.Module) -> torch.optim.Optimizer:
        head: list[nn.Parameter] = []
        others: list[nn.Parameter] = []
        for name, parameter in network.named_parameters():
            (head if name.startswith("relation.") else others).append(parameter)
        groups = [{"params": others, "scale": 1.0}, {"params": head, "scale": head_scale}]
        used = [group for group in groups if group["params"]]  # a rank may hold one part of the network only
        # one pass over each parameter and its moments, where a plain one takes a dozen
        return torch.optim.Adam(used, lr=params.train.learning_rate, fused=True)

    return make


def learning_rates(params: Params, steps: int, batchsz: int) -> Callable[[int], float]:
    """Learning rate of each of `steps` steps of `batchsz` episodes.

    The full rate is `train.learning_rate`, scaled with the size of the batch: linearly (Goyal et al.,
    Accurate, Large Minibatch SGD, 2017) or with its root (Krizhevsky, One Weird Trick, 2014, section 5). It
    is reached over `train.warmup_steps`, in equal parts (Goyal et al., section 2.2).
    cosine: half a cosine from the full rate to 0 (Loshchilov and Hutter, ICLR 2017, without restarts).
    """
    train = params.train
    ratio = batchsz / train.lr_batchsz
    full = train.learning_rate * {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[train.lr_scaling]

    def rate(step: int) -> float:
        warm = min(1.0, (step + 1) / (train.warmup_steps + 1))
        decay = 1.0 if train.schedule == "constant" else 0.5 * (1 + math.cos(math.pi * step / steps))
        return full * warm * decay

    return rate
