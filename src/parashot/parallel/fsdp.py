"""Fully sharded data parallelism: each rank holds a share of every parameter and its optimizer state.

A block's parameters are gathered for its forward and its backward and released after them; gradients are
summed into the shares. Rajbhandari et al., ZeRO, SC 2020; Zhao et al., PyTorch FSDP, VLDB 2023.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from parashot.parallel.context import Placement
from parashot.parallel.exchange import broadcast_from_main
from parashot.parallel.strategy import ShardedStrategy, weighted_loss
from parashot.task import Batch, Task

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor


class Fsdp(ShardedStrategy):
    """Communication per step: an all-gather per block, forward and backward, and a reduce-scatter."""

    name = "fsdp"
    scales = False  # torch.amp.GradScaler does not look at what other ranks hold of a sharded gradient

    @staticmethod
    def unsupported_reason(placement: Placement, task: Task, params: Any) -> str:
        if placement.device_type == "cpu" and not hasattr(torch.cpu.Stream, "record_event"):
            return f"fsdp runs on GPUs only in torch {torch.__version__}; install a newer one"
        return "" if placement.replicas > 1 else "fsdp shards parameters over 2 or more devices, 1 is here"

    def in_words(self) -> str:
        return "each with a share of every parameter"

    def place(self, network: nn.Module) -> nn.Module:
        from torch.distributed.fsdp import fully_shard  # takes most of a second, which others need not wait

        # outputs may be a view; nothing is done to them in place, which is what torch warns of
        warnings.filterwarnings("ignore", message=r"FSDP2-wrapped module .* returned a view tensor")
        group = self.context.group or dist.group.WORLD
        assert group is not None
        self.mesh = DeviceMesh.from_group(group, self.context.device.type)
        # shares are cut along the first dimension of plain memory: no channels_last for the weights here
        broadcast_from_main(network.state_dict().values(), self.context)
        # modules that share a parameter, as tied embeddings do, must be in one unit
        tied = len([*network.named_parameters(remove_duplicate=False)]) > len([*network.parameters()])
        for unit in (*([] if tied else _blocks(network)), network):
            fully_shard(unit, mesh=self.mesh)
        return network

    def forward_backward(self, batch: Batch) -> torch.Tensor:
        # the sum of gradients is divided by the world size
        loss, sums = weighted_loss(self.model(batch.data), self.task, batch, self.context.world_size)
        loss.backward()
        return sums

    @torch.no_grad()
    def gathered(self, own: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: value.full_tensor() if _is_shard(value) else value for name, value in own.items()}

    @torch.no_grad()
    def own_parts(self, whole: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        from torch.distributed.tensor import distribute_tensor

        own, parts = self.network.state_dict(), {}
        for name, value in whole.items():
            mine, here = own[name], value.to(self.context.device)
            parts[name] = distribute_tensor(here, self.mesh, mine.placements) if _is_shard(mine) else here
        return parts

    def gradients(self) -> list[torch.Tensor]:
        return [each.to_local() if _is_shard(each) else each for each in super().gradients()]

    @contextmanager
    def accumulating(self) -> Iterator[None]:
        network = cast("FSDPModule", self.network)
        network.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            network.set_requires_gradient_sync(True)


def _blocks(network: nn.Module) -> Iterator[nn.Module]:
    """Units that are gathered one after another: the network's children, those of containers one by one.

    A child that is no container is one unit: it may use the weights of its layers without calling them.
    """
    for child in network.children():
        is_container = isinstance(child, nn.Sequential | nn.ModuleList | nn.ModuleDict)
        for each in child.children() if is_container else [child]:
            if isinstance(each, nn.ModuleList | nn.ModuleDict):  # they are never called
                yield from _blocks(each)
            elif any(True for _ in each.parameters()):
                yield each


def _is_shard(value: torch.Tensor) -> TypeGuard[DTensor]:
    """Whether it is this rank's share of a tensor."""
    from torch.distributed.tensor import DTensor

    return isinstance(value, DTensor)
