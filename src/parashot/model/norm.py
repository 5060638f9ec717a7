"""Batch norm over groups of a batch: ghost batch norm.

Hoffer et al., Train Longer, Generalize Better (NeurIPS 2017), section 4: each group of the batch is
normalised by its own mean and variance. Replicas whose shares are whole groups then normalise as one device
does, and a larger batch changes nothing in what is normalised together.

m maps (images, pairs) of C channels
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm


class _GroupedNorm(_BatchNorm):
    """Batch norm that takes `group` consecutive maps at a time while it trains; 0: all, as PyTorch does.

    Where `group` does not divide the batch its last group has what is left. Running statistics move, per
    call, towards the mean of the groups' statistics, each weighted by its number of maps.
    """

    group = 0

    def forward(self, maps: Tensor) -> Tensor:
        """Maps [m, C, ...] to maps of the same shape and memory order."""
        if not self.training or not 0 < self.group < len(maps):
            return super().forward(maps)
        assert self.num_batches_tracked is not None and self.momentum is not None
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
        mean, variance, normalised, left = self.running_mean, self.running_var, list[Tensor](), len(maps)
        for each in maps.split(self.group):
            left -= len(each)
            # later groups shrink what earlier ones added: in the end each has its share of the momentum
            own = self.momentum * len(each) / (len(maps) - self.momentum * left)
            normalised.append(F.batch_norm(each, mean, variance, self.weight, self.bias, True, own, self.eps))
        return torch.cat(normalised)


class BatchNorm1d(_GroupedNorm, nn.BatchNorm1d):
    """`torch.nn.BatchNorm1d` by groups of `group` rows."""


class BatchNorm2d(_GroupedNorm, nn.BatchNorm2d):
    """`torch.nn.BatchNorm2d` by groups of `group` maps."""


def norm_by_groups(network: nn.Module, group: int) -> None:
    """Let every batch norm of `network` take `group` of its inputs at a time while it trains."""
    for module in network.modules():
        if isinstance(module, _GroupedNorm):
            module.group = group
