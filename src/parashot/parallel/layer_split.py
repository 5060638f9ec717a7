"""The layers on two devices: the first part of the network on one, the second on the other.

Huang et al., GPipe, NeurIPS 2019. A step's items pass in `micro_batches`, so that the first device works on
one while the second works on another. Its order is one forward, one backward (Narayanan et al., PipeDream,
SOSP 2019), so that at most two micro-batches are kept: the first device sends maps on, the second sends their
gradients back. With m micro-batches and parts of equal work, the share of a step in which a device waits is
1 / (m + 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from parashot.parallel.context import Placement
from parashot.parallel.exchange import from_all_ranks
from parashot.parallel.strategy import ShardedStrategy, autocast, channels_last, weighted_loss
from parashot.task import Batch, Task


class LayerSplit(ShardedStrategy):
    """Communication per step: the maps of every item one way, their gradients the other."""

    name = "layer_split"
    shares_items = False

    @staticmethod
    def unsupported_reason(placement: Placement, task: Task, params: Any) -> str:
        if task.layer_cut() is None:
            return "layer_split needs a network in two parts, and this one has none"
        if (placement.device_type, placement.rendezvous.backend) == ("cuda", "gloo"):
            return "gloo sends nothing that lies on a GPU; set parallel.backend=auto to compare layer_split"
        if placement.replicas == 2:
            return ""
        return f"layer_split has 2 parts for 2 devices, not {placement.replicas}; set parallel.replicas=2"

    def in_words(self) -> str:
        first, second = self.cut.parts
        return f"{first} in one and {second} in the other, {self.params.micro_batches} micro-batches"

    def place(self, network: nn.Module) -> nn.Module:
        cut = self.task.layer_cut()
        assert cut is not None  # see `unsupported_reason`
        self.cut, self.peer = cut, 1 - self.context.rank
        # a group for each direction: on NCCL, what travels one way would wait for what travels the other
        self.onward, self.back = self._new_group(), self._new_group()
        self._forms: dict[tuple[torch.Size, ...], tuple[torch.Size, torch.dtype]] = {}
        self._connect()
        setattr(network, cut.parts[self.peer], nn.Identity())
        return channels_last(network)

    def _new_group(self) -> dist.ProcessGroup:
        ranks = dist.get_process_group_ranks(self.context.group or dist.group.WORLD)
        timeout = self.context.placement.rendezvous.timeout
        group = dist.new_group(ranks, timeout=timeout, use_local_synchronization=True)
        assert isinstance(group, dist.ProcessGroup)  # this rank is one of them
        return group

    def _connect(self) -> None:
        """Send a message each way: NCCL connects at the first, which must not be in the midst of a step."""
        token = torch.zeros(1, device=self.context.device)
        for group, sender in ((self.onward, 0), (self.back, 1)):
            if self.context.rank == sender:
                dist.send(token, group=group, group_dst=self.peer)
            else:
                dist.recv(token, group=group, group_src=self.peer)

    def forward_backward(self, batch: Batch) -> torch.Tensor:
        parts = list(batch.parts(self.params.micro_batches))
        return self._run_first(parts) if self.context.is_main else self._run_second(parts)

    def _run_first(self, parts: list[Batch]) -> torch.Tensor:
        """First device: a micro-batch goes forward before the gradients of the last are waited for."""
        waiting: list[tuple[Tensor, dist.Work | None]] = []
        for part in parts:
            maps = self._maps(part)
            waiting.append((maps, dist.isend(_packed(maps.detach()), group=self.onward, group_dst=self.peer)))
            if len(waiting) > 1:
                self._backward(*waiting.pop(0))
        for each in waiting:
            self._backward(*each)
        dtype = torch.promote_types(next(self.network.parameters()).dtype, torch.float32)
        return torch.zeros(2, device=self.context.device, dtype=dtype)

    def _maps(self, part: Batch) -> Tensor:
        prepared = self.task.prepare(part.data)
        with autocast(self.options, self.context.device.type):
            maps = self.cut.first(self.network, prepared)
        key = _shapes(part)
        if key not in self._forms:  # both ranks see that it is new: they read the same data
            self._forms[key] = _packed(maps).shape, maps.dtype
            dist.send_object_list([self._forms[key]], group=self.onward, group_dst=self.peer)
        return maps

    def _backward(self, maps: Tensor, sent: dist.Work | None) -> None:
        gradient = torch.empty_like(_packed(maps))
        dist.recv(gradient, group=self.back, group_src=self.peer)
        if sent is not None:
            sent.wait()
        maps.backward(_unpacked(gradient))

    def _run_second(self, parts: list[Batch]) -> torch.Tensor:
        """Second device: each micro-batch forward and at once backward."""
        sums, sent = [], []
        for part in parts:
            maps = self._received(part)
            prepared = self.task.prepare(part.data)
            with autocast(self.options, self.context.device.type):
                outputs = self.cut.second(self.network, maps, prepared)
            loss, mine = weighted_loss(outputs, self.task, part)
            loss.backward()
            assert maps.grad is not None
            message = _packed(maps.grad)
            sent.append((message, dist.isend(message, group=self.back, group_dst=self.peer)))
            sums.append(mine)
        for _, work in sent:
            if work is not None:
                work.wait()
        return torch.stack(sums).sum(0)

    def _received(self, part: Batch) -> Tensor:
        key = _shapes(part)
        if key not in self._forms:
            box: list[Any] = [None]
            dist.recv_object_list(box, group=self.onward, group_src=self.peer)
            self._forms[key] = box[0]
        shape, dtype = self._forms[key]
        message = torch.empty(shape, dtype=dtype, device=self.context.device)
        dist.recv(message, group=self.onward, group_src=self.peer)
        return _unpacked(message).requires_grad_()

    def gathered(self, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
        held = from_all_ranks({name: value.detach().cpu() for name, value in own.items()}, self.context)
        return {name: value.to(self.context.device) for part in held for name, value in part.items()}

    def own_parts(self, whole: Mapping[str, Tensor]) -> dict[str, Tensor]:
        mine = self.cut.parts[self.context.rank]
        return {name: value for name, value in whole.items() if name.split(".")[0] == mine}


def _shapes(part: Batch) -> tuple[torch.Size, ...]:
    return tuple(each.shape for each in part.tensors)


def _packed(maps: Tensor) -> Tensor:
    """Maps [m, C, h, w] as they travel: [m, h, w, C] contiguous, which channels_last maps are already."""
    return maps.permute(0, 2, 3, 1).contiguous()


def _unpacked(message: Tensor) -> Tensor:
    return message.permute(0, 3, 1, 2)
