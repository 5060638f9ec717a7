"""What the strategies share that run in processes."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import distributed as dist

from parashot.model.network import RelationNetwork
from parashot.parallel.context import Context, ensure_group
from parashot.parallel.strategy import MakeOptimizer, Objective, Strategy


class RankStrategy(Strategy):
    """A strategy with a process for each replica, or for each part of the network."""

    def __init__(
        self,
        network: RelationNetwork,
        objective: Objective,
        make_optimizer: MakeOptimizer,
        context: Context,
        params: Any,
    ) -> None:
        ensure_group(context)
        super().__init__(network, objective, make_optimizer, context, params)
        self.replicas = context.ranks
        self.how = f"{context.ranks} processes, {self.in_words()}, {dist.get_backend(context.group)}"

    @staticmethod
    def processes(replicas: int) -> int:
        return replicas

    @abstractmethod
    def in_words(self) -> str:
        """What the processes hold and how they exchange it."""
