"""Base classes of the strategies that run in several processes."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import distributed as dist
from torch import nn

from parashot.parallel.context import Context, ensure_group
from parashot.parallel.exchange import average_over_ranks, broadcast_from_main, same_on_all_ranks
from parashot.parallel.strategy import StepOptions, Strategy, channels_last
from parashot.task import Task


class RankStrategy(Strategy):
    """A strategy with a process for each replica, or for each part of the network."""

    def __init__(self, task: Task, options: StepOptions, context: Context, params: Any) -> None:
        ensure_group(context)
        super().__init__(task, options, context, params)
        self.replicas = context.world_size
        self.how = f"{context.world_size} processes, {self.in_words()}, {dist.get_backend(context.group)}"

    @staticmethod
    def processes(replicas: int) -> int:
        return replicas

    @abstractmethod
    def in_words(self) -> str:
        """Describe what the processes hold and how they exchange it."""


class ReplicaStrategy(RankStrategy):
    """A strategy whose ranks hold a whole replica each."""

    def replicas_agree(self) -> bool:
        return same_on_all_ranks(self.network.parameters(), self.context)

    def average_buffers(self, share: float) -> None:
        average_over_ranks(self.network.buffers(), share, self.context)

    def synchronise_buffers(self) -> None:
        broadcast_from_main(self.network.buffers(), self.context)


class ShardedStrategy(RankStrategy):
    """A strategy whose ranks hold parts of the network, which is put together for evaluation."""

    def __init__(self, task: Task, options: StepOptions, context: Context, params: Any) -> None:
        self._whole = task.network().to("meta")
        super().__init__(task, options, context, params)

    @abstractmethod
    def gathered(self, own: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]: ...

    @abstractmethod
    def own_parts(self, whole: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]: ...

    def on_any_rank(self, flag: torch.Tensor) -> bool:
        everywhere = flag.clone()
        dist.all_reduce(everywhere, dist.ReduceOp.MAX, group=self.context.group)
        return bool(everywhere)

    def whole_network(self) -> nn.Module:
        whole = copy.deepcopy(self._whole).to_empty(device=self.context.device)
        whole.load_state_dict(self.gathered(self.network.state_dict()))
        return channels_last(whole.train(self.network.training))
