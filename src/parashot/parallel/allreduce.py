"""Synchronous SGD by hand: a process per replica, gradients summed over all ranks after backward.

DistributedDataParallel without its overlap. `flat` copies all gradients into one buffer that travels as one
message; otherwise each parameter's travels by itself, as tutorials write it, and pays the latency of a
message as often as there are parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import distributed as dist
from torch import nn

from parashot.parallel.exchange import broadcast_from_main, sum_in_one_message
from parashot.parallel.strategy import ReplicaStrategy
from parashot.task import Batch


class Allreduce(ReplicaStrategy):
    """Communication per step: one all-reduce of all gradients, or one for each parameter."""

    name = "allreduce"
    compiles = True

    def in_words(self) -> str:
        message = "one message" if self.params.flat else "a message per parameter"
        return f"a replica each, gradients in {message}"

    def place(self, network: nn.Module) -> nn.Module:
        network = super().place(network)
        broadcast_from_main([*network.parameters(), *network.buffers()], self.context)
        return network

    def forward_backward(self, batch: Batch) -> torch.Tensor:
        sums = super().forward_backward(batch)
        if self.exchanging:
            self.exchange()
        return sums

    @torch.no_grad()
    def exchange(self) -> None:
        """Sum every gradient over all ranks: each rank's loss is its share of the step's mean already.

        Where backward did not reach a parameter its gradient is 0: another rank's may not be, and all ranks
        must send the same tensors in the same order.
        """
        for each in self.network.parameters():
            if each.requires_grad and each.grad is None:
                each.grad = torch.zeros_like(each)
        if self.params.flat:
            sum_in_one_message(self.gradients(), self.context)
            return
        for gradient in self.gradients():
            dist.all_reduce(gradient, group=self.context.group)

    @contextmanager
    def accumulating(self) -> Iterator[None]:
        self.exchanging = False
        try:
            yield
        finally:
            self.exchanging = True
