"""DistributedDataParallel: a process per replica, gradients averaged in buckets during backward.

Li et al., VLDB 2020.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from parashot.parallel.context import Context, Placement
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
            static_graph=params.static_graph,
            find_unused_parameters=params.find_unused_parameters,
        )
        # averaged after each step instead; the argument of this name is deprecated since torch 2.13
        self.wrapped.broadcast_buffers = not task.averages_buffers
        if params.compression == "bf16":
            self.wrapped.register_comm_hook(context.group, bf16_compress_hook)

    def in_words(self) -> str:
        return "a replica each"

    @staticmethod
    def unsupported_reason(placement: Placement, task: Task, params: Any) -> str:
        if params.sync_batch_norm and placement.device_type == "cpu":
            return "SyncBatchNorm works on GPUs only; set parallel.ddp.sync_batch_norm=false"
        if params.sync_batch_norm and task.averages_buffers:
            return "SyncBatchNorm takes all replicas together, not groups; set model.norm_episodes=0"
        fewest = task.items % task.batchsz or task.batchsz
        if params.sync_batch_norm and fewest < placement.replicas:
            return f"SyncBatchNorm needs {task.unit}s for all replicas in each step, and one has {fewest}"
        return ""

    def place(self, network: nn.Module) -> nn.Module:
        network = super().place(network)
        if self.params.sync_batch_norm:
            nn.SyncBatchNorm.convert_sync_batchnorm(network, self.context.group)  # in place, names stay
        return network

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
