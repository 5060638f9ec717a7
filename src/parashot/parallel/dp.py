"""DataParallel: one process, a thread per replica.

On GPUs it is `torch.nn.DataParallel`. Without a GPU that class only calls the module, so what it does on GPUs
is built here and labelled so, step by step: parameters are copied out from the first replica, inputs
scattered; a thread is started for each replica's forward pass, and all are waited for; outputs are gathered,
and their loss is taken; the backward passes run in a standing thread per replica, as those of autograd on
GPUs, and are waited for; gradients are summed to the first replica; one optimizer step.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import record_function

from parashot.parallel.context import Context
from parashot.parallel.strategy import EXCHANGE, StepOptions, Strategy, weighted_loss
from parashot.task import Batch, Task

LossOf = Callable[[Tensor, Batch], tuple[Tensor, Tensor]]
"""Gathered outputs [b, ...] and their batch to what `weighted_loss` returns."""


class Dp(Strategy):
    """Communication per step: parameters out, inputs out, outputs back, gradients back."""

    name = "dp"

    def __init__(self, task: Task, options: StepOptions, context: Context, params: Any) -> None:
        super().__init__(task, options, context, params)
        self.replicas = context.placement.replicas
        module: nn.Module = _WithLoss(self.model, task) if params.loss_in_replica else self.model
        self.engine: CpuEngine | nn.DataParallel[nn.Module]
        if context.device.type == "cuda":
            self.engine = nn.DataParallel(module, device_ids=list(range(self.replicas)))
            self.how = f"1 process, torch.nn.DataParallel over {self.replicas} GPU{'s' * (self.replicas > 1)}"
        else:
            threads = context.placement.threads_per_replica
            self.engine = CpuEngine(module, self.replicas, threads, task.averages_buffers)
            self.how = f"1 process, {self.replicas} replica threads: DataParallel's mechanism on a CPU"

    def forward_backward(self, batch: Batch) -> Tensor:
        if isinstance(self.engine, CpuEngine):
            return self.engine.forward_backward(batch, self._loss)
        loss, sums = self._loss(self.engine(batch.data), batch)
        loss.backward()
        return sums

    def _loss(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        if self.params.loss_in_replica:
            loss, sums = outputs[:, 0].sum() / batch.total, outputs.detach().sum(0)
        else:
            loss, sums = weighted_loss(outputs, self.task, batch)
        return self.scaler.scale(loss), sums

    def close(self) -> None:
        if isinstance(self.engine, CpuEngine):
            self.engine.close()


class CpuEngine:
    """DataParallel's mechanism on a CPU.

    `replicas[0]` is the network itself; the methods carry the names of `torch.nn.DataParallel`'s.
    averages_buffers: running statistics become the mean over replicas, which `torch.nn.DataParallel` cannot
    do: there those of all replicas but the first are lost.
    """

    def __init__(
        self, module: nn.Module, replicas: int, threads_per_replica: int, averages_buffers: bool
    ) -> None:
        self.replicas = [module, *(copy.deepcopy(module) for _ in range(replicas - 1))]
        self.threads_per_replica = threads_per_replica
        self.averages_buffers = averages_buffers
        self.backward_threads = [self._thread() for _ in range(replicas)]

    def forward_backward(self, batch: Batch, loss_of: LossOf) -> Tensor:
        """Add the gradient of a batch to the first replica's; returns the sums of `loss_of`."""
        shards = self.scatter(batch)
        self.replicate(len(shards))
        outputs = self.parallel_apply(shards)
        gathered = self.gather([each.detach() for each in outputs]).requires_grad_()
        loss, sums = loss_of(gathered, batch)
        loss.backward()
        assert gathered.grad is not None
        self.backward(outputs, gathered.grad.split([len(each) for each in outputs]))
        self.reduce([len(shard) / len(batch) for shard in shards])
        return sums

    @record_function(f"{EXCHANGE}scatter")
    def scatter(self, batch: Batch) -> list[Batch]:
        """Share out whole items in order; fewer shards than replicas where there are fewer items."""
        return list(batch.parts(len(self.replicas)))

    @record_function(f"{EXCHANGE}replicate")
    @torch.no_grad()
    def replicate(self, count: int) -> None:
        """Copy parameters and buffers out from the first replica."""
        source = [*self.replicas[0].parameters(), *self.replicas[0].buffers()]
        for replica in self.replicas[1:count]:
            for target, value in zip([*replica.parameters(), *replica.buffers()], source, strict=True):
                target.copy_(value)
            replica.zero_grad(set_to_none=True)
            for module, original in zip(replica.modules(), self.replicas[0].modules(), strict=True):
                module.training = original.training

    def parallel_apply(self, shards: Sequence[Batch]) -> list[Tensor]:
        """Call each replica in a thread of its own, started for this step. Raises what a thread raised."""
        with ExitStack() as threads:
            calls = [
                threads.enter_context(self._thread()).submit(replica, shard.data)
                for replica, shard in zip(self.replicas, shards, strict=False)  # of the first replicas
            ]
            return [call.result() for call in calls]

    @staticmethod
    @record_function(f"{EXCHANGE}gather")
    def gather(outputs: Sequence[Tensor]) -> Tensor:
        """Concatenate the replicas' outputs on the first device."""
        return torch.cat(list(outputs))

    def backward(self, outputs: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """Go back through each replica in its own thread. Raises what a thread raised."""
        triples = zip(self.backward_threads, outputs, gradients, strict=False)
        for call in [thread.submit(output.backward, gradient) for thread, output, gradient in triples]:
            call.result()

    @record_function(f"{EXCHANGE}reduce")
    @torch.no_grad()
    def reduce(self, shares: Sequence[float]) -> None:
        """Sum the gradients of the first replicas onto the first; `shares`: of the items, of each."""
        used = self.replicas[: len(shares)]
        for replica in used[1:]:
            for target, value in zip(used[0].parameters(), replica.parameters(), strict=True):
                if value.grad is not None:
                    assert target.grad is not None
                    target.grad.add_(value.grad)
        if self.averages_buffers:
            for target, *others in zip(*(replica.buffers() for replica in used), strict=True):
                if target.is_floating_point():
                    target.mul_(shares[0])
                    for share, value in zip(shares[1:], others, strict=True):
                        target.add_(value, alpha=share)

    def close(self) -> None:
        for thread in self.backward_threads:
            thread.shutdown()

    def _thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "replica", torch.set_num_threads, (self.threads_per_replica,))


class _WithLoss(nn.Module):
    """Network and loss as one module: data -> [b, 2], loss and metric of each item, or its replica's mean."""

    def __init__(self, network: nn.Module, task: Task) -> None:
        super().__init__()
        self.network = network
        self.task = task

    def forward(self, data: Any) -> Tensor:
        outputs = self.network(data)
        losses, metrics = self.task.loss(outputs, data), self.task.metric(outputs, data)
        items = len(Batch(data, total=0))
        return torch.stack([losses.expand(items), metrics.to(losses.dtype).expand(items)], dim=-1)
