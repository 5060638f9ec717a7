"""DataParallel: one process, a thread per replica.

On GPUs it is `torch.nn.DataParallel`. Without a GPU that class only calls the module, so its mechanism is
built here as it works on GPUs, and labelled so: parameters copied out from the first replica each step,
inputs scattered, forward *and backward in each replica's own thread*, gradients summed to the first, one
optimizer step. (CUDA's autograd runs a thread per device; on a CPU one `backward()` over all replicas would
run in the calling thread alone and make DataParallel look slower than it is.)
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

import torch
from torch import nn

from parashot.data.batches import Batch
from parashot.model.network import RelationNetwork
from parashot.parallel.context import Context
from parashot.parallel.strategy import EXCHANGE, Loss, MakeOptimizer, Objective, Strategy, part_of_step
from parashot.params import DpParams

P = ParamSpec("P")
T = TypeVar("T")
Shard = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Support, query and indices of whole episodes."""


def _shown_as_exchange(method: Callable[P, T]) -> Callable[P, T]:
    """`method`, which moves data between replicas, as the profiler shall show it."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with torch.profiler.record_function(EXCHANGE + method.__name__):
            return method(*args, **kwargs)

    return call


class Dp(Strategy):
    """Communication per step: parameters out, inputs out, outputs back, gradients back."""

    name = "dp"

    def __init__(
        self,
        network: RelationNetwork,
        objective: Objective,
        make_optimizer: MakeOptimizer,
        context: Context,
        params: DpParams,
    ) -> None:
        super().__init__(network, objective, make_optimizer, context, params)
        self.replicas = context.placement.replicas
        self.loss_in_replica = params.loss_in_replica
        self.engine: CpuEngine | CudaEngine
        if context.device.type == "cuda":
            self.engine = CudaEngine(self.model, objective, self.replicas, params.loss_in_replica)
            self.how = f"1 process, torch.nn.DataParallel over {self.replicas} GPUs"
        else:
            self.engine = CpuEngine(self.model, self.replicas, context.placement.threads_per_replica)
            self.how = f"1 process, {self.replicas} replica threads: DataParallel's mechanism on a CPU"

    @staticmethod
    def processes(replicas: int) -> int:
        return 1

    def forward_backward(self, batch: Batch) -> torch.Tensor:
        run = self.engine.loss_in_replica if self.loss_in_replica else self.engine.gathered_scores
        return run(batch, self.objective)

    @property
    def transport(self) -> object:
        """The object whose methods scatter, replicate and gather."""
        return self.engine.wrapped if isinstance(self.engine, CudaEngine) else self.engine

    def close(self) -> None:
        self.engine.close()


class CpuEngine:
    """DataParallel's mechanism on a CPU.

    `replicas[0]` is the network itself, each replica has a thread of its own. The methods carry the names of
    `torch.nn.DataParallel`'s, so that both are counted alike.
    """

    def __init__(self, network: nn.Module, replicas: int, threads_per_replica: int) -> None:
        self.replicas = [network, *(copy.deepcopy(network) for _ in range(replicas - 1))]
        self.threads = [
            ThreadPoolExecutor(1, f"replica-{index}", torch.set_num_threads, (threads_per_replica,))
            for index in range(replicas)
        ]

    def loss_in_replica(self, batch: Batch, objective: Objective) -> torch.Tensor:
        """The study's way: each replica takes the loss of its own shard."""

        def one(replica: nn.Module, shard: Shard) -> torch.Tensor:
            loss, sums = part_of_step(replica(*shard), objective, batch)
            loss.backward()
            return sums

        shards = self.scatter(*batch.tensors)
        self.replicate(len(shards))
        sums = self.parallel_apply(one, shards)
        self.reduce(len(shards))
        return self.gather([each[None] for each in sums]).sum(0)

    def gathered_scores(self, batch: Batch, objective: Objective) -> torch.Tensor:
        """Scores are gathered on the first device, which takes the loss and sends its gradient back."""
        shards = self.scatter(*batch.tensors)
        self.replicate(len(shards))
        outputs = self.parallel_apply(lambda replica, shard: replica(*shard), shards)
        scores = self.gather([each.detach() for each in outputs]).requires_grad_()
        loss, sums = part_of_step(scores, objective, batch)
        loss.backward()
        assert scores.grad is not None
        gradients = scores.grad.split([len(each) for each in outputs])
        pairs = list(zip(outputs, gradients, strict=True))
        self.parallel_apply(lambda _, pair: pair[0].backward(pair[1]), pairs)
        self.reduce(len(shards))
        return sums

    @_shown_as_exchange
    def scatter(self, support: torch.Tensor, query: torch.Tensor, episodes: torch.Tensor) -> list[Shard]:
        """Whole episodes, shared out in order; fewer shards than replicas where there are fewer episodes."""
        count = min(len(self.replicas), len(support))
        parts = (each.tensor_split(count) for each in (support, query, episodes))
        return list(zip(*parts, strict=True))

    @_shown_as_exchange
    @torch.no_grad()
    def replicate(self, count: int) -> None:
        """Copy parameters and buffers out from the first replica.

        The copies' own buffers are lost, as on GPUs.
        """
        source = [*self.replicas[0].parameters(), *self.replicas[0].buffers()]
        for replica in self.replicas[1:count]:
            for target, value in zip([*replica.parameters(), *replica.buffers()], source, strict=True):
                target.copy_(value)
            replica.train(self.replicas[0].training)
            replica.zero_grad(set_to_none=True)
            for module, original in zip(replica.modules(), self.replicas[0].modules(), strict=True):
                module.training = original.training

    def parallel_apply(
        self, function: Callable[[nn.Module, T], torch.Tensor], inputs: Sequence[T]
    ) -> list[torch.Tensor]:
        """Call `function(replica, input)` for each input in its replica's thread.

        Raises what a thread raised.
        """
        replicas, threads = self.replicas[: len(inputs)], self.threads[: len(inputs)]
        futures = [
            thread.submit(function, replica, each)
            for thread, replica, each in zip(threads, replicas, inputs, strict=True)
        ]
        return [future.result() for future in futures]

    @staticmethod
    @_shown_as_exchange
    def gather(outputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """Bring the replicas' outputs together on the first device."""
        return torch.cat(list(outputs))

    @_shown_as_exchange
    @torch.no_grad()
    def reduce(self, count: int) -> None:
        """Sum the replicas' gradients onto the first."""
        for replica in self.replicas[1:count]:
            for target, value in zip(self.replicas[0].parameters(), replica.parameters(), strict=True):
                if value.grad is not None:
                    assert target.grad is not None
                    target.grad.add_(value.grad)

    def close(self) -> None:
        """End the threads."""
        for thread in self.threads:
            thread.shutdown()


class CudaEngine:
    """`torch.nn.DataParallel` over the first `replicas` GPUs, the loss inside or outside of the replicas."""

    def __init__(
        self, network: nn.Module, objective: Objective, replicas: int, loss_in_replica: bool
    ) -> None:
        module = _WithLoss(network, objective.loss, objective.accuracy) if loss_in_replica else network
        self.wrapped = nn.DataParallel(module, device_ids=list(range(replicas)))

    def loss_in_replica(self, batch: Batch, objective: Objective) -> torch.Tensor:
        """Each replica returns its episodes' losses and accuracies."""
        losses, accuracies = self.wrapped(*batch.tensors).unbind(-1)
        (losses.sum() / batch.total).backward()
        return torch.stack([losses.detach().sum(), accuracies.detach().sum()])

    def gathered_scores(self, batch: Batch, objective: Objective) -> torch.Tensor:
        """The loss is taken on the first device."""
        loss, sums = part_of_step(self.wrapped(*batch.tensors), objective, batch)
        loss.backward()
        return sums

    def close(self) -> None:
        """Nothing to release."""


class _WithLoss(nn.Module):
    """Network and loss as one module: an episode's tensors -> [b, 2], loss and accuracy of each episode."""

    def __init__(self, network: nn.Module, loss: Loss, accuracy: Loss) -> None:
        super().__init__()
        self.network = network
        self.loss = loss
        self.accuracy = accuracy

    def forward(self, support: torch.Tensor, query: torch.Tensor, episodes: torch.Tensor) -> torch.Tensor:
        scores = self.network(support, query, episodes)
        losses = self.loss(scores)
        return torch.stack([losses, self.accuracy(scores).to(losses.dtype)], dim=-1)
