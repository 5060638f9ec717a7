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
from typing import Any, ParamSpec, TypeVar

import torch
from torch import nn

from parashot.parallel.context import Context
from parashot.parallel.strategy import EXCHANGE, StepOptions, Strategy, weighted_loss
from parashot.task import Batch, Task

P = ParamSpec("P")
T = TypeVar("T")


def _profiled_as_exchange(method: Callable[P, T]) -> Callable[P, T]:
    """Let the profiler show `method`, which moves data between replicas, as exchange."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with torch.profiler.record_function(EXCHANGE + method.__name__):
            return method(*args, **kwargs)

    return call


class Dp(Strategy):
    """Communication per step: parameters out, inputs out, outputs back, gradients back."""

    name = "dp"

    def __init__(self, task: Task, options: StepOptions, context: Context, params: Any) -> None:
        super().__init__(task, options, context, params)
        self.replicas = context.placement.replicas
        self.engine: CpuEngine | CudaEngine
        if context.device.type == "cuda":
            self.engine = CudaEngine(self.model, task, self.replicas, params.loss_in_replica)
            self.how = f"1 process, torch.nn.DataParallel over {self.replicas} GPUs"
        else:
            self.engine = CpuEngine(self.model, task, self.replicas, context.placement.threads_per_replica)
            self.how = f"1 process, {self.replicas} replica threads: DataParallel's mechanism on a CPU"

    @staticmethod
    def processes(replicas: int) -> int:
        return 1

    def forward_backward(self, batch: Batch) -> torch.Tensor:
        if self.params.loss_in_replica:
            return self.engine.loss_in_replica(batch)
        return self.engine.gathered_outputs(batch)

    @property
    def transport(self) -> object:
        """Object whose methods scatter, replicate and gather."""
        return self.engine.wrapped if isinstance(self.engine, CudaEngine) else self.engine

    def close(self) -> None:
        self.engine.close()


class CpuEngine:
    """DataParallel's mechanism on a CPU.

    `replicas[0]` is the network itself, each replica has a thread of its own. The methods carry the names of
    `torch.nn.DataParallel`'s, so that both are counted alike.
    """

    def __init__(self, network: nn.Module, task: Task, replicas: int, threads_per_replica: int) -> None:
        self.task = task
        self.replicas = [network, *(copy.deepcopy(network) for _ in range(replicas - 1))]
        self.threads = [
            ThreadPoolExecutor(1, f"replica-{index}", torch.set_num_threads, (threads_per_replica,))
            for index in range(replicas)
        ]

    def loss_in_replica(self, batch: Batch) -> torch.Tensor:
        """Take the loss of each shard in its replica: the study's way."""

        def one(replica: nn.Module, shard: Batch) -> torch.Tensor:
            loss, sums = weighted_loss(replica(shard.data), self.task, shard)
            loss.backward()
            return sums

        shards = self.scatter(batch)
        self.replicate(len(shards))
        sums = self.parallel_apply(one, shards)
        self.reduce(len(shards))
        return self.gather([each[None] for each in sums]).sum(0)

    def gathered_outputs(self, batch: Batch) -> torch.Tensor:
        """Gather the outputs on the first device, which takes the loss and sends its gradient back."""
        shards = self.scatter(batch)
        self.replicate(len(shards))
        outputs = self.parallel_apply(lambda replica, shard: replica(shard.data), shards)
        gathered = self.gather([each.detach() for each in outputs]).requires_grad_()
        loss, sums = weighted_loss(gathered, self.task, batch)
        loss.backward()
        assert gathered.grad is not None
        gradients = gathered.grad.split([len(each) for each in outputs])
        pairs = list(zip(outputs, gradients, strict=True))
        self.parallel_apply(lambda _, pair: pair[0].backward(pair[1]), pairs)
        self.reduce(len(shards))
        return sums

    @_profiled_as_exchange
    def scatter(self, batch: Batch) -> list[Batch]:
        """Share out whole items in order; fewer shards than replicas where there are fewer items."""
        return list(batch.parts(len(self.replicas)))

    @_profiled_as_exchange
    @torch.no_grad()
    def replicate(self, count: int) -> None:
        """Copy parameters and buffers out from the first replica.

        The copies' own buffers are lost, as on GPUs.
        """
        source = [*self.replicas[0].parameters(), *self.replicas[0].buffers()]
        for replica in self.replicas[1:count]:
            for target, value in zip([*replica.parameters(), *replica.buffers()], source, strict=True):
                target.copy_(value)
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
    @_profiled_as_exchange
    def gather(outputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """Concatenate the replicas' outputs on the first device."""
        return torch.cat(list(outputs))

    @_profiled_as_exchange
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

    def __init__(self, network: nn.Module, task: Task, replicas: int, loss_in_replica: bool) -> None:
        self.task = task
        module = _WithLoss(network, task) if loss_in_replica else network
        self.wrapped = nn.DataParallel(module, device_ids=list(range(replicas)))

    def loss_in_replica(self, batch: Batch) -> torch.Tensor:
        """Let each replica return its items' losses and metrics."""
        losses, metrics = self.wrapped(batch.data).unbind(-1)
        (losses.sum() / batch.total).backward()
        return torch.stack([losses.detach().sum(), metrics.detach().sum()])

    def gathered_outputs(self, batch: Batch) -> torch.Tensor:
        """Take the loss on the first device."""
        loss, sums = weighted_loss(self.wrapped(batch.data), self.task, batch)
        loss.backward()
        return sums

    def close(self) -> None:
        """Nothing to release."""


class _WithLoss(nn.Module):
    """Network and loss as one module: data -> [b, 2], loss and metric of each item."""

    def __init__(self, network: nn.Module, task: Task) -> None:
        super().__init__()
        self.network = network
        self.task = task

    def forward(self, data: Any) -> torch.Tensor:
        outputs = self.network(data)
        losses = self.task.loss(outputs, data)
        return torch.stack([losses, self.task.metric(outputs, data).to(losses.dtype)], dim=-1)
