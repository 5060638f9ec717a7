"""Interface of a strategy, and the one step that all of them share.

A strategy spreads one optimizer step over devices: over replicas of the network, which share out the items of
the batch, or over parts of it, which all see every item. It owns placement, what is exchanged and the plain
state dict; model and loop know nothing of it. Whatever the split, the loss of a step is the mean over all its
items: each replica's part is weighted by its share, so a batchsz that the replicas do not divide is exact.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch
from torch import distributed as dist
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch.nn.utils import get_total_norm

from parashot.parallel.context import Context, Placement
from parashot.parallel.exchange import broadcast_from_main, same_on_all_ranks, sum_in_one_message
from parashot.task import Batch, Plan, Task

Network = TypeVar("Network", bound=nn.Module)

EXCHANGE = "exchange:"
"""Prefix, in the profiler, of what a strategy copies by hand in this process."""

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""Precisions that autocast computes in."""


@dataclass(frozen=True)
class StepOptions:
    """How a step is computed, alike for every strategy.

    precision: fp32; bf16 or fp16 by autocast, fp16 with a gradient scaler; tf32 for the matrix products of a
    GPU. accumulate: parts a step is computed in, one after another. check_gradient: whether a step looks for
    NaN and infinity in its gradient; the loop looks at losses in any case. skip_nonfinite: a step that finds
    some leaves the network as it was. compile: mode of torch.compile, or `none`. dynamic: False for compiled
    kernels of each size of input by itself, None for what PyTorch takes. channels_last: memory order of
    convolution weights, and so of the maps between them.
    """

    precision: str = "fp32"
    accumulate: int = 1
    check_gradient: bool = True
    skip_nonfinite: bool = False
    compile: str = "none"
    dynamic: bool | None = None
    channels_last: bool = True


class TaskModule(nn.Module):
    """A task's forward pass as a module: data as loaders deliver them -> outputs [b, ...]."""

    def __init__(self, network: nn.Module, task: Task, options: StepOptions, device_type: str) -> None:
        super().__init__()
        self.network, self.task, self.options = network, task, options
        self.device_type = device_type  # replicas of torch.nn.DataParallel have no parameters to ask

    def forward(self, data: Any) -> torch.Tensor:
        """Prepare the data, then apply the network in the precision of the options."""
        prepared = self.task.prepare(data)
        with autocast(self.options, self.device_type):
            return self.task.forward(self.network, prepared)


class Strategy(ABC):
    """One way to spread a training step over devices.

    `replicas` of them take part; `how` says in words what really runs. `network` is what this rank trains:
    the whole network, the first of its replicas, or this rank's part of it. `params` is the strategy's own
    section of params.yaml.
    """

    name: ClassVar[str]
    compiles: ClassVar[bool] = False
    """Whether a network that torch.compile has compiled can be trained so."""

    scales: ClassVar[bool] = True
    """Whether its gradients can be scaled, as fp16 needs."""

    shares_items: ClassVar[bool] = True
    """Whether replicas share out the items of a step; else all ranks read all of them."""

    exchanging = True
    """Whether a step exchanges gradients and running statistics."""

    replicas: int
    how: str

    def __init__(self, task: Task, options: StepOptions, context: Context, params: Any) -> None:
        self.task, self.options, self.context, self.params = task, options, context, params
        network = task.network()
        if context.world_size == 1:
            synchronise_alone(network)
        if options.compile != "none":
            network.compile(mode=options.compile, dynamic=options.dynamic)
        self.network = self.place(network.to(context.device))
        self.model = TaskModule(self.network, task, options, context.device.type)
        self.optimizer = task.optimizer(self.network)
        self.scaler = torch.amp.GradScaler(context.device.type, enabled=options.precision == "fp16")

    @staticmethod
    def processes(replicas: int) -> int:
        """Number of processes this strategy needs for so many replicas."""
        return 1

    @staticmethod
    def unsupported_reason(placement: Placement, task: Task, params: Any) -> str:
        """Reason why the strategy cannot train `task` on these replicas, or an empty text."""
        return ""

    @classmethod
    def plan(cls, items: int, batchsz: int, context: Context) -> Plan:
        """Items a rank reads: its share of every step, unless all ranks work on all of them."""
        if cls.shares_items:
            return Plan(items, batchsz, context.rank, context.world_size)
        return Plan(items, batchsz)

    def place(self, network: nn.Module) -> nn.Module:
        """Keep this rank's part of `network`, which lies on this rank's device."""
        return channels_last(network) if self.options.channels_last else network

    def forward_backward(self, batch: Batch) -> torch.Tensor:
        """Add to `network`'s gradient that of the mean loss over the step's items.

        The batch is this process's share, or a part of it, on its device. Returns [2], without a graph: the
        summed loss and the summed metric of the batch's items (0 where it is a stand-in).
        """
        loss, sums = weighted_loss(self.model(batch.data), self.task, batch)
        self.scaler.scale(loss).backward()
        return sums

    def step(self, batch: Batch) -> torch.Tensor:
        """Do one optimizer step.

        Returns [3]: the two sums of `forward_backward`, and not 0 where NaN or infinity is in a gradient that
        is checked. Nothing here waits for the device, unless such steps are skipped.
        """
        skips = self.options.skip_nonfinite
        statistics = [each.clone() for each in self.network.buffers()] if skips else []
        self.optimizer.zero_grad(set_to_none=True)
        # every rank has as many parts as the smallest share has items: their collectives meet
        ranks = self.context.world_size if self.shares_items else 1
        count = min(self.options.accumulate, max(1, batch.total // ranks))
        *parts, last = batch.to(self.context.device).parts(count)
        with matrix_products(self.options):
            with self.accumulating():
                sums = [self.forward_backward(part) for part in parts]
            sums.append(self.forward_backward(last))
        total = torch.stack(sums).sum(0)
        self.scaler.unscale_(self.optimizer)
        nonfinite = total.new_zeros(())
        # the scaler leaves out a step that overflows in fp16, as it is meant to
        if self.options.check_gradient and not self.scaler.is_enabled():
            nonfinite = any_nonfinite(self.gradients()).to(total)
        if skips and self.on_any_rank(nonfinite):
            for each, value in zip(self.network.buffers(), statistics, strict=True):
                each.copy_(value)
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
            if self.task.averages_buffers and self.exchanging:
                self.average_buffers(len(batch) * batch.weight / batch.total)
        return torch.cat([total, nonfinite[None]])

    def set_learning_rate(self, rate: float) -> None:
        """Use `rate` from the next step on; a parameter group with a `scale` takes that multiple of it."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.get("scale", 1.0)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the whole network's plain state on the CPU, under its own names. Every rank calls it."""
        whole = self.gathered(self.network.state_dict())
        return {
            # a module's extra state may be of any class
            name: value.detach().cpu().clone() if isinstance(value, torch.Tensor) else value
            for name, value in whole.items()
        }

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Load the whole network's plain state; the optimizer's stays as it is. Every rank calls it."""
        self.network.load_state_dict(self.own_parts(state))

    def gathered(self, own: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Gather whole tensors from this rank's `own`, each shaped like the one of its name in `network`."""
        return dict(own)

    def own_parts(self, whole: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return this rank's parts of `whole` tensors: the inverse of `gathered`."""
        return dict(whole)

    def whole_network(self) -> nn.Module:
        """Return the whole network, on this rank's device, for evaluation. Every rank calls it."""
        return self.network

    def gradients(self) -> list[torch.Tensor]:
        """Return what this rank holds of the step's gradient."""
        return [each.grad for each in self.network.parameters() if each.grad is not None]

    def on_any_rank(self, flag: torch.Tensor) -> bool:
        """Return whether `flag` [] is not 0 on any rank; ranks with the whole gradient hold the same one."""
        return bool(flag)

    def replicas_agree(self) -> bool:
        """Return whether all replicas hold the same parameters, bit for bit. True for a single copy."""
        return True

    def average_buffers(self, share: float) -> None:
        """Average running statistics over the ranks, each by its `share` of the step's items."""

    def synchronise_buffers(self) -> None:
        """Give every rank the main one's running statistics, so that all evaluate one and the same model."""

    def accumulating(self) -> AbstractContextManager[None]:
        """Within it, gradients add up locally; the exchange waits for the step's last part."""
        return nullcontext()

    def without_exchange(self) -> AbstractContextManager[None]:
        """Within it, `ddp` leaves out the exchange of gradients: the difference in time is its cost."""
        return nullcontext()

    def close(self) -> None:
        """Release threads."""


def autocast(options: StepOptions, device_type: str) -> AbstractContextManager[None]:
    """Precision to compute in, for the thread that enters it (DataParallel has several)."""
    dtype = AUTOCAST.get(options.precision)
    context: AbstractContextManager[None] = torch.autocast(
        device_type, dtype or torch.bfloat16, enabled=dtype is not None
    )
    return context


@contextmanager
def matrix_products(options: StepOptions) -> Iterator[None]:
    """Let a GPU round the inputs of matrix products to TF32 where the options say so."""
    if options.precision != "tf32":
        yield  # the process's own setting stands
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def channels_last(network: Network) -> Network:
    """Return the same network with convolution weights in the memory order of images [..., h, w, 3]."""
    for each in (*network.parameters(), *network.buffers()):
        if each.dim() == 4:  # Module.to refuses a network that has others of 5 as well
            each.data = each.data.contiguous(memory_format=torch.channels_last)
    return network


def any_nonfinite(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Whether any of `tensors` holds NaN or infinity: bool [], one pass, no wait for the device."""
    values = (each.coalesce().values() if each.is_sparse else each for each in tensors)
    filled = [each for each in values if each.numel()]  # a rank's share of a small parameter may be empty
    return ~torch.isfinite(get_total_norm(filled, norm_type=torch.inf))


def weighted_loss(
    outputs: torch.Tensor, task: Task, batch: Batch, times: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """A replica's part of a step, from its outputs.

    Returns `times` its contribution to the mean loss over all the step's items, with its graph, and [2] sums
    of loss and metric without one.
    """
    items = len(batch) * batch.weight
    loss = _mean(task.loss(outputs, batch.data))
    metric = _mean(task.metric(outputs, batch.data).to(loss.dtype))
    sums = torch.stack([loss.detach(), metric]) * items
    share = times * items / batch.total
    return loss if share == 1 else loss * share, sums


def _mean(items: torch.Tensor) -> torch.Tensor:
    """Mean of what items have; a mean goes back to the task's own graph without a node between."""
    return items.mean() if items.ndim else items


# --- strategies of several processes ------------------------------------------------------------------


class RankStrategy(Strategy):
    """A strategy with a process for each replica, or for each part of the network."""

    def __init__(self, task: Task, options: StepOptions, context: Context, params: Any) -> None:
        if not dist.is_initialized():  # DistributedDataParallel asks a lone process for a group too
            backend = context.placement.rendezvous.backend
            dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
        super().__init__(task, options, context, params)
        self.replicas = context.world_size
        processes = "1 process" if self.replicas == 1 else f"{self.replicas} processes"
        self.how = f"{processes}, {self.in_words()}, {dist.get_backend(context.group)}"

    @staticmethod
    def processes(replicas: int) -> int:
        return replicas

    @abstractmethod
    def in_words(self) -> str:
        """Describe what the processes hold and how they exchange it."""

    def average_buffers(self, share: float) -> None:
        averaged = [each for each in self.network.buffers() if each.is_floating_point()]
        if self.shares_items and averaged:
            sum_in_one_message(averaged, self.context, share)

    def synchronise_buffers(self) -> None:
        if self.shares_items:
            broadcast_from_main(self.network.buffers(), self.context)


class ReplicaStrategy(RankStrategy):
    """A strategy whose ranks hold a whole replica each."""

    def replicas_agree(self) -> bool:
        return same_on_all_ranks(self.network.parameters(), self.context)


class ShardedStrategy(RankStrategy):
    """A strategy whose ranks hold parts of the network (`gathered`, `own_parts`), joined for evaluation."""

    def on_any_rank(self, flag: torch.Tensor) -> bool:
        everywhere = flag.clone()
        dist.all_reduce(everywhere, dist.ReduceOp.MAX, group=self.context.group)
        return bool(everywhere)

    def whole_network(self) -> nn.Module:
        whole = self.task.network().to(self.context.device)
        whole.load_state_dict(self.gathered(self.network.state_dict()))
        return channels_last(whole.train(self.network.training))


def synchronise_alone(network: nn.Module) -> None:
    """Let `torch.nn.SyncBatchNorm` wait for no other rank, which does not train this network."""
    layers = [each for each in network.modules() if isinstance(each, nn.SyncBatchNorm)]
    if layers and dist.is_initialized() and dist.get_world_size() > 1:
        group = dist.new_group([dist.get_rank()], use_local_synchronization=True)
        for each in layers:
            each.process_group = group
