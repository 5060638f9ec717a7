"""What a strategy is, and the one step that all of them share.

A strategy spreads one optimizer step over devices: over replicas of the network, which share out the
episodes, or over parts of it, which all see every episode. It owns placement, what is exchanged and the plain
state dict; model and loop know nothing of it. Whatever the split, the loss of a step is the mean over all its
episodes: each replica's part is weighted by its share, so a batchsz that the replicas do not divide is exact.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch
from torch import nn
from torch.nn.utils import get_total_norm

from parashot.data.batches import Batch, Plan
from parashot.model.network import RelationNetwork
from parashot.parallel.context import Context, Placement
from parashot.parallel.inputs import FromPixels, Inputs

Loss = Callable[[torch.Tensor], torch.Tensor]
"""Scores [b, q, n] -> loss of each episode [b]."""

Network = TypeVar("Network", bound=nn.Module)

EXCHANGE = "exchange:"
"""What a strategy copies by hand in this process bears this prefix in the profiler."""

MakeOptimizer = Callable[[nn.Module], torch.optim.Optimizer]
"""An optimizer of all parameters of a network, or of a rank's part of one, under their own names."""


@dataclass(frozen=True)
class Objective:
    """What is minimised, what is reported beside it, and in how many parts a step is computed.

    With `skips_nonfinite`, a step whose gradient holds NaN or infinity leaves the network as it was.
    """

    loss: Loss
    accuracy: Loss
    inputs: Inputs
    accumulate: int = 1
    skips_nonfinite: bool = False


class Strategy(ABC):
    """One way to spread a training step over devices.

    `replicas` of them take part; `how` says in words what really runs. `network` is what this rank trains:
    the whole network, the first of its replicas, or this rank's part of it. `params` is the strategy's own
    section of params.yaml.
    """

    name: ClassVar[str]
    compiles: ClassVar[bool] = False
    """Whether a network that torch.compile has compiled can be trained so."""

    reads: ClassVar[str] = "episodes"
    remedy: ClassVar[str] = (
        "set a smaller train.learning_rate, or leave such steps out by train.on_nonfinite=skip"
    )
    """What to do against NaN and infinity."""

    replicas: int
    how: str

    def __init__(
        self,
        network: RelationNetwork,
        objective: Objective,
        make_optimizer: MakeOptimizer,
        context: Context,
        params: Any,
    ) -> None:
        self.context = context
        self.objective = objective
        self.params = params
        self.network = self.place(network.to(context.device))
        self.model = FromPixels(self.network, objective.inputs)
        self.optimizer = make_optimizer(self.network)

    @staticmethod
    @abstractmethod
    def processes(replicas: int) -> int:
        """How many processes this strategy needs for so many replicas."""

    @staticmethod
    def unsupported(placement: Placement, params: Any) -> str:
        """Why the strategy cannot run on these replicas with its section of params, or an empty text."""
        return ""

    @staticmethod
    def plan(episodes: int, batchsz: int, rank: int, ranks: int) -> Plan:
        """Which episodes a rank reads: its share of every step, unless all ranks work on all of them."""
        return Plan(episodes, batchsz, rank, ranks)

    def place(self, network: RelationNetwork) -> RelationNetwork:
        """What of `network`, which lies on this rank's device, this rank keeps."""
        return channels_last(network)

    @abstractmethod
    def forward_backward(self, batch: Batch) -> torch.Tensor:
        """Add to `network`'s gradient that of the mean loss over the step's episodes.

        The batch is this process's share, or a part of it, on its device. Returns [2], without a graph: the
        summed loss and the summed accuracy of the batch's episodes (0 where it is a stand-in).
        """

    def step(self, batch: Batch) -> torch.Tensor:
        """Do one optimizer step.

        Returns [3]: the two sums of `forward_backward`, and not 0 where the gradient holds NaN or infinity.
        Nothing here waits for the device, unless such steps are left out.
        """
        skips = self.skips_nonfinite
        statistics = [each.clone() for each in self.network.buffers()] if skips else []
        self.optimizer.zero_grad(set_to_none=True)
        *parts, last = batch.to(self.context.device).parts(self.objective.accumulate)
        with self.accumulating():
            sums = [self.forward_backward(part) for part in parts]
        sums.append(self.forward_backward(last))
        total = torch.stack(sums).sum(0)
        nonfinite = any_nonfinite(self.gradients()).to(total)
        if skips and self.on_any_rank(nonfinite):
            for each, value in zip(self.network.buffers(), statistics, strict=True):
                each.copy_(value)
        else:
            self.optimizer.step()
        return torch.cat([total, nonfinite[None]])

    @property
    def skips_nonfinite(self) -> bool:
        """Whether a step whose gradient holds NaN or infinity leaves the network as it was."""
        return self.objective.skips_nonfinite

    def set_learning_rate(self, rate: float) -> None:
        """Use `rate` from the next step on; a group of parameters with a `scale` takes that part of it."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.get("scale", 1.0)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The whole network's plain state on the CPU, under its own names: it loads without this strategy.

        Every rank calls it, and gets it.
        """
        whole = self.gathered(self.network.state_dict())
        return {name: value.detach().cpu().clone() for name, value in whole.items()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Take up the whole network's plain state; the optimizer's stays as it is. Every rank calls it."""
        self.network.load_state_dict(self.own_parts(state))

    def gathered(self, own: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Whole tensors from this rank's `own`, each shaped like the one of its name in `network`."""
        return dict(own)

    def own_parts(self, whole: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What this rank holds of `whole` tensors: `gathered` the other way round."""
        return dict(whole)

    def whole_network(self) -> RelationNetwork:
        """The whole network as it stands, on this rank's device: what is evaluated. Every rank calls it."""
        return self.network

    def gradients(self) -> list[torch.Tensor]:
        """What this rank holds of the step's gradient."""
        return [each.grad for each in self.network.parameters() if each.grad is not None]

    def on_any_rank(self, flag: torch.Tensor) -> bool:
        """Whether `flag` [] is not 0 on any rank. Ranks that hold the whole gradient hold the same one."""
        return bool(flag)

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


def any_nonfinite(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Whether any of `tensors` holds NaN or infinity, as bool []; one pass, and no wait for the device."""
    filled = [each for each in tensors if each.numel()]  # a rank's share of a small parameter may be empty
    return ~torch.isfinite(get_total_norm(filled, norm_type=torch.inf))


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
