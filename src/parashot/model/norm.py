"""Batch norm over groups of a batch: ghost batch norm.

Hoffer et al., Train Longer, Generalize Better (NeurIPS 2017), section 4: each group of the batch is
normalised by its own mean and variance. Replicas whose shares are whole groups then normalise as one device
does, and a larger batch changes nothing in what is normalised together.

m maps (images, pairs) of C channels, in g groups of consecutive maps
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

Normalised = tuple[Tensor, Tensor, Tensor]
"""Maps [m, C, ...]; mean and 1 / sqrt(variance + eps) of each group [g, C], without a graph."""


class _GroupedNorm(_BatchNorm):
    """Batch norm that takes `group` consecutive maps at a time while it trains; 0: all, as PyTorch does.

    Where `group` does not divide the batch its last group has what is left. Running statistics move once per
    call, towards the mean of the groups' statistics, each weighted by its number of maps.
    """

    group = 0

    def forward(self, maps: Tensor) -> Tensor:
        """Maps [m, C, ...] to maps of the same shape and memory order."""
        if not self.training or not 0 < self.group < len(maps):
            return super().forward(maps)
        normalise = concatenated if torch.compiler.is_compiling() else _InPlace.apply
        normalised, means, scales = normalise(maps, self.weight, self.bias, self.group, self.eps)
        self._follow(means, scales, maps.shape)
        return normalised

    @torch.no_grad()
    def _follow(self, means: Tensor, scales: Tensor, shape: torch.Size) -> None:
        assert self.running_mean is not None and self.running_var is not None
        assert self.num_batches_tracked is not None
        sizes = [min(self.group, shape[0] - first) for first in range(0, shape[0], self.group)]
        counts = [size * shape[2:].numel() for size in sizes]
        shares = means.new_tensor([size / shape[0] for size in sizes])[:, None]
        unbiased = means.new_tensor([count / max(count - 1, 1) for count in counts])[:, None]
        variances = (scales**-2 - self.eps) * unbiased
        self.num_batches_tracked.add_(1)
        # without a momentum: the mean over all batches, as PyTorch's
        momentum = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_((shares * means).sum(0), momentum)
        self.running_var.lerp_((shares * variances).sum(0), momentum)


def concatenated(maps: Tensor, weight: Tensor, bias: Tensor, group: int, eps: float) -> Normalised:
    """Normalise each group by itself, then concatenate: what torch.compile can see through."""
    found = [
        torch.native_batch_norm(each, weight, bias, None, None, True, 0.0, eps) for each in maps.split(group)
    ]
    normalised, means, scales = zip(*found, strict=True)
    return torch.cat(normalised), torch.stack(means), torch.stack(scales)


class _InPlace(torch.autograd.Function):
    """The same with each group written to its place; concatenating would copy it, forward and backward."""

    @staticmethod
    def forward(ctx: Any, maps: Tensor, weight: Tensor, bias: Tensor, group: int, eps: float) -> Normalised:
        normalised, groups = torch.empty_like(maps), maps.split(group)
        means = weight.new_empty(len(groups), len(weight))
        scales = torch.empty_like(means)
        rows = zip(groups, normalised.split(group), means.unbind(), scales.unbind(), strict=True)
        for each, out, mean, scale in rows:
            torch.ops.aten.native_batch_norm.out(
                each, weight, bias, None, None, True, 0.0, eps, out=out, save_mean=mean, save_invstd=scale
            )
        ctx.save_for_backward(maps, weight, means, scales)
        ctx.mark_non_differentiable(means, scales)
        ctx.group, ctx.eps = group, eps
        return normalised, means, scales

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        maps, weight, means, scales = ctx.saved_tensors
        of_maps, of_weight, of_bias = torch.empty_like(maps), [], []
        parts = (each.split(ctx.group) for each in (gradients[0], maps, of_maps))
        for gradient, each, out, mean, scale in zip(*parts, means.unbind(), scales.unbind(), strict=True):
            found, weights, biases = torch.ops.aten.native_batch_norm_backward(
                gradient, each, weight, None, None, mean, scale, True, ctx.eps, [True, True, True]
            )
            out.copy_(found)
            of_weight.append(weights)
            of_bias.append(biases)
        return of_maps, torch.stack(of_weight).sum(0), torch.stack(of_bias).sum(0), None, None


class BatchNorm1d(_GroupedNorm, nn.BatchNorm1d):
    """`torch.nn.BatchNorm1d` by groups of `group` rows."""


class BatchNorm2d(_GroupedNorm, nn.BatchNorm2d):
    """`torch.nn.BatchNorm2d` by groups of `group` maps."""


def norm_by_groups(network: nn.Module, group: int) -> None:
    """Let every batch norm of `network` take `group` of its inputs at a time while it trains."""
    for module in network.modules():
        if isinstance(module, _GroupedNorm):
            module.group = group
