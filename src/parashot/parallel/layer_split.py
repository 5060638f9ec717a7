"""The layers on two devices: the embedding on the first, the relation head on the second.

Huang et al., GPipe, NeurIPS 2019. A step's episodes pass in `micro_batches`, so that the first device works
on one while the second works on another. Its order is one forward, one backward (Narayanan et al., PipeDream,
SOSP 2019), so that at most two micro-batches are kept: the first device hands maps on, the second hands their
gradients back. With m micro-batches and parts of equal work, the share of a step in which a device waits is
1 / (m + 1).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch import distributed as dist

from parashot.data.batches import Batch
from parashot.model.network import RelationNetwork, all_images, maps_of_episodes
from parashot.parallel.context import Placement
from parashot.parallel.split import EveryEpisode, SplitStrategy
from parashot.parallel.strategy import channels_last, part_of_step

PARTS = ("embedding", "relation")
"""Attributes of the network, in the order of the ranks that hold them."""


class LayerSplit(EveryEpisode, SplitStrategy):
    """Communication per step: the maps of every image one way, their gradients the other."""

    name = "layer_split"

    @staticmethod
    def unsupported(placement: Placement, params: object) -> str:
        if placement.replicas == len(PARTS):
            return ""
        return f"layer_split has 2 parts for 2 devices, not {placement.replicas}; set parallel.replicas=2"

    def in_words(self) -> str:
        in_flight = f"{self.params.micro_batches} micro-batches"
        return f"the embedding in one and the relation head in the other, {in_flight}"

    def place(self, network: RelationNetwork) -> RelationNetwork:
        self.part, self.peer = PARTS[self.context.rank], 1 - self.context.rank
        # a group for each direction: on NCCL, what travels one way would wait for what travels the other
        ranks = dist.get_process_group_ranks(self.context.group or dist.group.WORLD)
        self.onward, self.back = _group(ranks), _group(ranks)
        self.map_shape, self.map_type = self._maps_of_one_image(network)
        setattr(network, PARTS[self.peer], nn.Identity())
        return channels_last(network)

    def forward_backward(self, batch: Batch) -> torch.Tensor:
        parts = list(batch.parts(self.params.micro_batches))
        return self._embed(parts) if self.context.is_first else self._relate(parts)

    def _embed(self, parts: list[Batch]) -> torch.Tensor:
        """The first device: a micro-batch goes forward before the gradients of the last are waited for."""
        waiting: list[tuple[Tensor, dist.Work | None]] = []
        for part in parts:
            maps = self._embedded(part)
            message = _packed(maps.detach())
            waiting.append((maps, dist.isend(message, group=self.onward, group_dst=self.peer)))
            if len(waiting) > 1:
                self._backward(*waiting.pop(0))
        for each in waiting:
            self._backward(*each)
        return torch.zeros(2, device=self.context.device, dtype=self._sum_type())

    def _embedded(self, part: Batch) -> Tensor:
        support, query = self.objective.inputs.prepared(*part.tensors)
        with self.objective.inputs.precision(self.context.device.type):
            return self.network.embed(all_images(support, query))

    def _backward(self, maps: Tensor, sent: dist.Work | None) -> None:
        gradient = torch.empty_like(_packed(maps))
        dist.recv(gradient, group=self.back, group_src=self.peer)
        if sent is not None:
            sent.wait()
        maps.backward(_unpacked(gradient))

    def _relate(self, parts: list[Batch]) -> torch.Tensor:
        """The second device: each micro-batch forward and at once backward."""
        sums, sent = [], []
        for part in parts:
            maps = self._received(part)
            with self.objective.inputs.precision(self.context.device.type):
                scores = self.network.relate(*maps_of_episodes(maps, *part.support.shape[:3]))
            loss, mine = part_of_step(scores, self.objective, part)
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
        b, n, k = part.support.shape[:3]
        images = b * (n * k + part.query.shape[1])
        shape, device = (images, *self.map_shape), self.context.device
        message = torch.empty(shape, dtype=self.map_type, device=device)
        dist.recv(message, group=self.onward, group_src=self.peer)
        return _unpacked(message).requires_grad_()

    def _maps_of_one_image(self, network: RelationNetwork) -> tuple[torch.Size, torch.dtype]:
        """Shape [h, w, C] and type of the maps that travel."""
        size, weight = self.objective.inputs.image_size, next(network.parameters())
        training = network.training
        network.eval()
        with torch.no_grad(), self.objective.inputs.precision(self.context.device.type):
            maps = network.embed(torch.zeros(1, 3, size, size, dtype=weight.dtype, device=weight.device))
        network.train(training)
        return _packed(maps).shape[1:], maps.dtype

    def _sum_type(self) -> torch.dtype:
        """Type of the losses, which only the second device computes."""
        return torch.promote_types(next(self.network.parameters()).dtype, torch.float32)

    def gathered(self, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
        forms = {name: (value.shape, value.dtype) for name, value in own.items()}
        everyone = [forms] * self.context.ranks
        dist.all_gather_object(everyone, forms, group=self.context.group)
        whole = {}
        for rank, held in enumerate(everyone):
            for name, (shape, dtype) in held.items():
                value = torch.empty(shape, dtype=dtype, device=self.context.device)
                if rank == self.context.rank:
                    value.copy_(own[name])
                dist.broadcast(value, group=self.context.group, group_src=rank)
                whole[name] = value
        return whole

    def own_parts(self, whole: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: value for name, value in whole.items() if name.split(".")[0] == self.part}


def _group(ranks: list[int]) -> dist.ProcessGroup:
    group = dist.new_group(ranks, use_local_synchronization=True)
    assert isinstance(group, dist.ProcessGroup)  # this rank is one of them
    return group


def _packed(maps: Tensor) -> Tensor:
    """Maps [m, C, h, w] as they travel: [m, h, w, C] in a row, which channels_last maps are already."""
    return maps.permute(0, 2, 3, 1).contiguous()


def _unpacked(message: Tensor) -> Tensor:
    return message.permute(0, 3, 1, 2)
