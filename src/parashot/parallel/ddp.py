"""DistributedDataParallel: a process per replica, gradients averaged in buckets during backward.

Li et al., VLDB 2020.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from parashot.parallel.context import Context
from parashot.parallel.strategy import ReplicaStrategy, StepOptions, weighted_loss
from parashot.task import Batch, Task


class Ddp(ReplicaStrategy):
    """Communication per step: an all-reduce per bucket of gradients, a message of running statistics."""

    name = "ddp"
    compiles = True

    def __init__(self, task: Task, options: StepOptions, context: Context, params: Any) -> None:
        super().__init__(task, options, context, params)
        self.wrapped = DistributedDataParallel(
            self.model,
            process_group=context.group,
            device_ids=[context.device] if context.device.type == "cuda" else None,
            bucket_cap_mb=params.bucket_mb,
            gradient_as_bucket_view=params.gradient_as_bucket_view,
            find_unused_parameters=params.find_unused_parameters,
        )
        # averaged after each step instead; the argument of this name is deprecated since torch 2.13
        self.wrapped.broadcast_buffers = not task.averages_buffers
        if params.compression == "bf16":
            self.wrapped.register_comm_hook(context.group, bf16_compress_hook)

    def in_words(self) -> str:
        return "a replica each"

    def forward_backward(self, batch: Batch) -> torch.Tensor:
        # DDP divides the sum of gradients by the world size
        loss, sums = weighted_loss(self.wrapped(batch.data), self.task, batch, self.context.world_size)
        self.scaler.scale(loss).backward()
        return sums

    def accumulating(self) -> AbstractContextManager[None]:
        return self.wrapped.no_sync()

    @contextmanager
    def without_exchange(self) -> Iterator[None]:
        # DDP decides at the end of a forward pass whether the next one sends the running statistics
        self.wrapped.require_forward_param_sync = self.exchanging = False
        try:
            with self.wrapped.no_sync():
                yield
        finally:
            self.wrapped.require_forward_param_sync = self.exchanging = True
