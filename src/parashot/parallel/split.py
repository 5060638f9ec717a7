"""What the strategies share that leave no rank with the whole network."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping

import torch
from torch import distributed as dist

from parashot.data.batches import Plan
from parashot.model.network import RelationNetwork
from parashot.parallel.context import Context
from parashot.parallel.ranks import RankStrategy
from parashot.parallel.strategy import MakeOptimizer, Objective, channels_last


class SplitStrategy(RankStrategy):
    """A strategy whose ranks hold parts of the network: for evaluation it is put together."""

    def __init__(
        self,
        network: RelationNetwork,
        objective: Objective,
        make_optimizer: MakeOptimizer,
        context: Context,
        params: object,
    ) -> None:
        self._shape = copy.deepcopy(network).to("meta")
        super().__init__(network, objective, make_optimizer, context, params)

    @abstractmethod
    def gathered(self, own: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]: ...

    @abstractmethod
    def own_parts(self, whole: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]: ...

    def on_any_rank(self, flag: torch.Tensor) -> bool:
        everywhere = flag.clone()
        dist.all_reduce(everywhere, dist.ReduceOp.MAX, group=self.context.group)
        return bool(everywhere)

    def whole_network(self) -> RelationNetwork:
        whole = copy.deepcopy(self._shape).to_empty(device=self.context.device)
        whole.load_state_dict(self.gathered(self.network.state_dict()))
        return channels_last(whole.train(self.network.training))


class EveryEpisode:
    """Of a strategy that splits the network rather than the batch: all ranks see every episode of a step."""

    @staticmethod
    def plan(episodes: int, batchsz: int, rank: int, ranks: int) -> Plan:
        """Every rank reads what a lone one would."""
        return Plan(episodes, batchsz)
