"""Whether strategies are one algorithm: the gradient of the same items by each, in float64, while training.

Rounding keeps float32 trainings of one algorithm from being equal; in float64 their gradients agree to 1e-10
and better, and those of another algorithm do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from parashot.parallel.channel_split import Cutter
from parashot.parallel.context import Context
from parashot.parallel.registry import build_strategy
from parashot.parallel.strategy import StepOptions
from parashot.params import ParallelParams
from parashot.task import Batch, LayerCut, Plan, Task


@dataclass(frozen=True)
class GradientProbe(Task):
    """A task in float64 whose step moves each parameter by its gradient: plain descent at a rate of 1."""

    task: Task

    @property
    def batchsz(self) -> int:
        return self.task.batchsz

    @property
    def items(self) -> int:
        return self.task.batchsz

    @property
    def averages_buffers(self) -> bool:
        return self.task.averages_buffers

    @property
    def splits_channels(self) -> bool:
        return self.task.splits_channels

    def network(self) -> nn.Module:
        return self.task.network().double()

    def batches(
        self, plan: Plan, context: Context, first: int = 0, *, in_process: bool = False
    ) -> Iterator[Batch]:
        return self.task.batches(plan, context, first, in_process=in_process)

    def prepare(self, data: Any) -> Any:
        prepared = self.task.prepare(data)
        return tree_map_only(
            Tensor, lambda each: each.double() if each.is_floating_point() else each, prepared
        )

    def forward(self, network: nn.Module, data: Any) -> Tensor:
        return self.task.forward(network, data)

    def loss(self, outputs: Tensor, data: Any) -> Tensor:
        return self.task.loss(outputs, data)

    def optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(network.parameters(), lr=1.0)

    def layer_cut(self) -> LayerCut | None:
        return self.task.layer_cut()

    def cut_channels(self, network: nn.Module, cutter: Cutter) -> None:
        self.task.cut_channels(network, cutter)


def gradient(name: str, task: Task, context: Context, parallel: ParallelParams) -> dict[str, Tensor]:
    """What the first step's items move in the whole state by a strategy: of a parameter, its gradient.

    Every rank of the strategy calls it, and gets it.
    """
    strategy = build_strategy(name, GradientProbe(task), StepOptions(), context, parallel)
    (batch,) = task.ready_batches(strategy.plan(task.batchsz, task.batchsz, context), 1, context)
    strategy.network.train()
    before = strategy.state_dict()
    strategy.step(batch)
    after = strategy.state_dict()
    strategy.close()
    return {name: value - after[name] for name, value in before.items()}


def base_gradient(name: str, task: Task, context: Context, parallel: ParallelParams) -> dict[str, Tensor]:
    """The same, of trained parameters alone: what others are compared with."""
    moved = gradient(name, task, context, parallel)
    return {name: moved[name] for name, _ in task.network().named_parameters()}


def difference(gradient: Mapping[str, Tensor], base: Mapping[str, Tensor]) -> float:
    """Largest difference of an entry to that of `base`, over the largest entry of `base`."""
    largest = max(float(each.abs().max()) for each in base.values())
    return max(float((gradient[name] - each).abs().max()) for name, each in base.items()) / largest
