"""What a strategy is, and the one step that all of them share.

A strategy spreads one optimizer step over replicas. It owns placement, the exchange of gradients and the
plain state dict; model and loop know nothing of it. Whatever the split, the loss of a step is the mean over
all its episodes: each replica's part is weighted by its share, so a batchsz that the replicas do not divide
is exact.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import torch
from torch import nn

from parashot.data.batches import Batch
from parashot.parallel.context import Context
from parashot.parallel.inputs import FromPixels, Inputs

Loss = Callable[[torch.Tensor], torch.Tensor]
"""Scores [b, q, n] -> loss of each episode [b]."""

Network = TypeVar("Network", bound=nn.Module)

MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


@dataclass(frozen=True)
class Objective:
    """What is minimised, what is reported beside it, and in how many parts a step is computed."""

    loss: Loss
    accuracy: Loss
    inputs: Inputs
    accumulate: int = 1


class Strategy(ABC):
    """One way to spread a training step over replicas.

    `replicas` of them take part; `how` says in words what really runs. `network` holds the first replica's
    parameters, or this rank's.
    """

    name: ClassVar[str]
    replicas: int
    how: str

    def __init__(
        self, network: nn.Module, objective: Objective, make_optimizer: MakeOptimizer, context: Context
    ):
        self.context = context
        self.objective = objective
        self.network = channels_last(network.to(context.device))
        self.model = FromPixels(self.network, objective.inputs)
        self.optimizer = make_optimizer(self.network.parameters())

    @staticmethod
    @abstractmethod
    def processes(replicas: int) -> int:
        """How many processes this strategy needs for so many replicas."""

    @abstractmethod
    def forward_backward(self, batch: Batch) -> torch.Tensor:
        """Add to `network`'s gradient that of the mean loss over the step's episodes.

        The batch is this process's share, or a part of it, on its device. Returns [2], without a graph: the
        summed loss and the summed accuracy of the batch's episodes (0 where it is a stand-in).
        """

    def step(self, batch: Batch) -> torch.Tensor:
        """Do one optimizer step; returns what `forward_backward` returns.

        Nothing here waits for the device.
        """
        self.optimizer.zero_grad(set_to_none=True)
        *parts, last = batch.to(self.context.device).parts(self.objective.accumulate)
        with self.accumulating():
            sums = [self.forward_backward(part) for part in parts]
        sums.append(self.forward_backward(last))
        self.optimizer.step()
        return torch.stack(sums).sum(0)

    def set_learning_rate(self, rate: float) -> None:
        """Use `rate` from the next step on."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The network's plain state on the CPU, under its own names: it loads without this strategy."""
        return {name: value.detach().cpu().clone() for name, value in self.network.state_dict().items()}

    def agree(self) -> bool:
        """Whether all replicas hold the same parameters, bit for bit. True where there is only one copy."""
        return True

    def synchronise_buffers(self) -> None:
        """Give every rank the first one's running statistics, so that all evaluate one and the same model."""

    def accumulating(self) -> AbstractContextManager[None]:
        """Within it, gradients pile up where they are; the exchange waits for the step's last part."""
        return nullcontext()

    def without_exchange(self) -> AbstractContextManager[None]:
        """Within it, steps leave out the exchange of gradients: the difference in time is what it costs."""
        return nullcontext()

    def close(self) -> None:
        """Release threads or groups."""


def channels_last(network: Network) -> Network:
    """The same network with the weights of its convolutions in the memory order of images [..., h, w, 3]."""
    return network.to(memory_format=torch.channels_last)


def part_of_step(
    scores: torch.Tensor, objective: Objective, batch: Batch
) -> tuple[torch.Tensor, torch.Tensor]:
    """A replica's part of a step, from its scores [b, q, n].

    Returns its contribution to the mean loss over all the step's episodes, with its graph, and [2] sums of
    loss and accuracy without one.
    """
    losses = objective.loss(scores) * batch.weight
    accuracies = objective.accuracy(scores) * batch.weight
    sums = torch.stack([losses.detach().sum(), accuracies.to(losses.dtype).sum()])
    return losses.sum() / batch.total, sums
