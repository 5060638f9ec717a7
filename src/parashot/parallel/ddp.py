"""DistributedDataParallel: a process per replica, gradients averaged in buckets during backward.

Li et al., VLDB 2020.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from parashot.data.batches import Batch
from parashot.parallel.context import Context, ensure_group
from parashot.parallel.strategy import MakeOptimizer, Objective, Strategy, part_of_step
from parashot.params import DdpParams


class Ddp(Strategy):
    """Communication per step: an all-reduce per bucket of gradients, a broadcast of running statistics."""

    name = "ddp"

    def __init__(
        self,
        network: nn.Module,
        objective: Objective,
        make_optimizer: MakeOptimizer,
        context: Context,
        params: DdpParams,
    ) -> None:
        super().__init__(network, objective, make_optimizer, context)
        ensure_group(context)
        self.replicas = context.ranks
        self.how = f"{context.ranks} processes, a replica each, {dist.get_backend(context.group)}"
        self.wrapped = DistributedDataParallel(
            self.model,
            process_group=context.group,
            device_ids=[context.device] if context.device.type == "cuda" else None,
            bucket_cap_mb=params.bucket_mb,
            gradient_as_bucket_view=True,  # backward writes where the exchange reads: nothing is copied
        )

    @staticmethod
    def processes(replicas: int) -> int:
        return replicas

    def forward_backward(self, batch: Batch) -> torch.Tensor:
        loss, sums = part_of_step(self.wrapped(*batch.tensors), self.objective, batch)
        (loss * self.context.ranks).backward()  # DDP divides the sum of gradients by the number of ranks
        return sums

    def agree(self) -> bool:
        digest = hashlib.sha256()
        for value in self.network.parameters():
            digest.update(value.detach().cpu().contiguous().numpy().tobytes())
        digests: list[bytes | None] = [None] * self.context.ranks
        dist.all_gather_object(digests, digest.digest(), group=self.context.group)
        return len(set(digests)) == 1

    def synchronise_buffers(self) -> None:
        for value in self.network.buffers():
            dist.broadcast(value, src=0, group=self.context.group)

    @contextmanager
    def accumulating(self) -> Iterator[None]:
        with self.wrapped.no_sync():
            yield

    @contextmanager
    def without_exchange(self) -> Iterator[None]:
        # DDP decides at the end of a forward pass whether the next one sends the running statistics
        self.wrapped.require_forward_param_sync = False
        try:
            with self.wrapped.no_sync():
                yield
        finally:
            self.wrapped.require_forward_param_sync = True
