"""Each layer's channels over the ranks: column, then row.

Shoeybi et al., Megatron-LM, 2019, for convolutions. A *column* layer computes a rank's share of the output
channels from all input channels; batch norms, pools and activations work on each channel by itself, so the
share passes through them; a *row* layer takes the share as its input channels and computes a part of every
output channel, and the ranks' parts are summed. Where the layer that follows wants all channels at once the
shares are gathered. Every rank sees every image, so batch norm sees the whole batch.

The collectives stand here by hand, for DTensor's convolutions are split over the batch alone and give wrong
numbers when their weights are sharded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch import distributed as dist

from parashot.parallel.context import Context, Placement
from parashot.parallel.exchange import broadcast_from_main, gather_parts, same_on_all_ranks
from parashot.parallel.strategy import ShardedStrategy, channels_last
from parashot.task import Batch, Task, even_share

MOST_RANKS = 8
"""The narrowest layer that is cut has 8 outputs."""


class ChannelSplit(ShardedStrategy):
    """Communication per step: a sum or a gathering of maps for every layer or two, forward and backward."""

    name = "channel_split"
    shares_items = False

    @staticmethod
    def unsupported_reason(placement: Placement, task: Task, params: Any) -> str:
        if task.channel_cut() is None:
            return "channel_split knows no way to cut this network; set model.head=relation to compare it"
        if 2 <= placement.replicas <= MOST_RANKS:
            return ""
        return (
            f"channel_split shares channels out over 2 to {MOST_RANKS} devices, not {placement.replicas}; "
            "set parallel.replicas"
        )

    def in_words(self) -> str:
        return "each with a share of every layer's channels"

    def place(self, network: nn.Module) -> nn.Module:
        broadcast_from_main(network.state_dict().values(), self.context)
        self.cutter = Cutter(network, self.context)
        cut = self.task.channel_cut()
        assert cut is not None  # see `unsupported_reason`
        cut(network, self.cutter)
        return channels_last(network)

    def forward_backward(self, batch: Batch) -> torch.Tensor:
        sums = super().forward_backward(batch)
        return sums if self.context.is_main else torch.zeros_like(sums)  # all ranks have the same sums

    def gathered(self, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
        cuts = self.cutter.cuts
        return {
            name: gather_parts(value, *cuts[name], self.context) if name in cuts else value
            for name, value in own.items()
        }

    def own_parts(self, whole: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: self.cutter.own(name, value) for name, value in whole.items()}

    def replicas_agree(self) -> bool:
        """Compare what every rank holds."""
        named = self.network.named_parameters()
        uncut = (value for name, value in named if name not in self.cutter.cuts)
        return same_on_all_ranks(uncut, self.context)


class Cutter:
    """Cuts a network's layers down to this rank's share, and puts the collectives between them."""

    def __init__(self, network: nn.Module, context: Context) -> None:
        self.network, self.context = network, context
        self.cuts: dict[str, tuple[int, int]] = {}
        """Dimension and whole size of each tensor that was cut, by its name in the state dict."""
        self._names = {module: name for name, module in network.named_modules()}

    def own(self, name: str, whole: Tensor) -> Tensor:
        """This rank's share of a tensor of the whole network."""
        if name not in self.cuts:
            return whole
        dim, size = self.cuts[name]
        mine = even_share(size, self.context.rank, self.context.world_size)
        return whole.narrow(dim, mine.start, mine.stop - mine.start)

    def column(self, layer: nn.Module, *, copied: bool = True) -> None:
        """Keep a share of the output channels; `copied`: the layer's input is the same on all ranks."""
        self._cut(layer, 0, "weight", "bias")
        if copied:
            layer.register_forward_pre_hook(lambda module, args: (_Copy.apply(args[0], self.context),))

    def row(self, layer: nn.Module) -> None:
        """Keep a share of the input channels; outputs are summed over the ranks."""
        self._cut(layer, 1, "weight")
        layer.register_forward_hook(self._summed)

    def norm(self, norm: nn.Module) -> None:
        """Keep a share of a batch norm's channels."""
        self._cut(norm, 0, "weight", "bias", "running_mean", "running_var")

    def gather(self, layer: nn.Module, norm: nn.Module) -> None:
        """Gather all channels of what `layer` returns: those of its batch norm."""
        channels = cast("nn.BatchNorm2d", norm).num_features
        layer.register_forward_hook(lambda module, args, maps: _Gather.apply(maps, channels, self.context))

    def copy_output(self, layer: nn.Module) -> None:
        """Mark what `layer` returns as used on all ranks, so that its gradients are summed."""
        layer.register_forward_hook(lambda module, args, maps: _Copy.apply(maps, self.context))

    def _cut(self, layer: nn.Module, dim: int, *names: str) -> None:
        for name in names:
            value = getattr(layer, name)
            if value is None:
                continue
            full = f"{self._names[layer]}.{name}"
            self.cuts[full] = (dim, value.shape[dim])
            mine = self.own(full, value.detach()).clone()
            is_parameter = isinstance(value, nn.Parameter)
            setattr(layer, name, nn.Parameter(mine, value.requires_grad) if is_parameter else mine)

    def _summed(self, layer: nn.Module, args: object, maps: Tensor) -> Tensor:
        bias = getattr(layer, "bias", None)
        # each rank has added the bias to its part: it counts once
        whole: Tensor = _Sum.apply(maps if bias is None else maps - bias, self.context)
        return whole if bias is None else whole + bias


class _Copy(torch.autograd.Function):
    """All ranks use the same maps: their gradient is the sum of what flows back on each."""

    @staticmethod
    def forward(ctx: Any, maps: Tensor, context: Context) -> Tensor:
        ctx.context = context
        return maps.view_as(maps)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _sum(gradients[0], ctx.context), None


class _Sum(torch.autograd.Function):
    """Maps are the sum of all ranks' parts: the gradient of each part is that of the sum."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, context: Context) -> Tensor:
        return _sum(part, context)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


class _Gather(torch.autograd.Function):
    """Maps [m, `channels`, h, w] are the ranks' shares side by side; each takes its share of the gradient."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, channels: int, context: Context) -> Tensor:
        ctx.share = even_share(channels, context.rank, context.world_size)
        return gather_parts(part, 1, channels, context)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradients[0][:, ctx.share], None, None


def _sum(part: Tensor, context: Context) -> Tensor:
    """The sum over all ranks, in memory ordered alike on all of them."""
    form = torch.channels_last if part.dim() == 4 else torch.contiguous_format
    whole = part.clone(memory_format=form)
    dist.all_reduce(whole, group=context.group)
    return whole
