"""Whether strategies are one algorithm: the gradient of the same items by each, in float64, while training.

Rounding keeps float32 trainings of one algorithm from being equal; in float64 their gradients agree to 1e-10
and better, and those of another algorithm do not.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils._pytree import tree_map_only

from parashot.parallel.context import Context
from parashot.parallel.registry import build_strategy
from parashot.parallel.strategy import StepOptions
from parashot.params import ParallelParams
from parashot.task import Task

USUAL = StepOptions()


def _probe(task: Task, exact: bool) -> Task:
    """The same task, whose step moves each parameter by its gradient: descent at a rate of 1.

    exact: in float64.
    """
    probe = copy.copy(task)
    # its own attributes, which come before the methods of its class
    vars(probe).update(optimizer=lambda network: torch.optim.SGD(network.parameters(), lr=1.0))
    if exact:
        vars(probe).update(
            network=lambda: task.network().double(),
            prepare=lambda data: tree_map_only(Tensor, _doubled, task.prepare(data)),
        )
    return probe


def _doubled(each: Tensor) -> Tensor:
    return each.double() if each.is_floating_point() else each


def gradient(
    name: str,
    task: Task,
    context: Context,
    parallel: ParallelParams,
    options: StepOptions = USUAL,
    *,
    exact: bool = True,
) -> dict[str, Tensor]:
    """What the first step's items move in the whole state by a strategy: of a parameter, its gradient.

    Of what is empty or no floats, nothing. Every rank of the strategy calls it, and gets it. exact: in
    float64, else as the task computes.
    """
    strategy = build_strategy(name, _probe(task, exact), options, context, parallel)
    (batch,) = task.ready_batches(strategy.plan(task.batchsz, task.batchsz, context), 1, context)
    strategy.network.train()
    before = strategy.state_dict()
    strategy.step(batch)
    after = strategy.state_dict()
    strategy.close()
    return {
        name: value - after[name]
        for name, value in before.items()
        if isinstance(value, Tensor) and value.numel() and (value.is_floating_point() or value.is_complex())
    }


def of_parameters(task: Task, moved: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The gradient of parameters alone: what others are compared with.

    By their names in the state, which wrappers may have changed, not those in the network.
    """
    state = task.network().state_dict(keep_vars=True)
    return {
        name: moved[name] for name, each in state.items() if isinstance(each, Parameter) and name in moved
    }


def difference(gradient: Mapping[str, Tensor], base: Mapping[str, Tensor]) -> float:
    """Largest difference of an entry to that of `base`, over the largest entry of `base`.

    Of the tensors that both have, one at least.
    """
    largest = max(float(each.abs().max()) for each in base.values())
    common = base.keys() & gradient.keys()
    return max(float((gradient[name] - base[name]).abs().max()) for name in common) / largest
