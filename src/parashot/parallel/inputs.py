"""From pixels to scores: what a replica does with its episodes before and around the network."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from parashot.data.augment import Augmentation, augment, augmentation_keys
from parashot.data.pixels import normalise, prepare

NO_AUGMENTATION = Augmentation()


@dataclass(frozen=True)
class Inputs:
    """How images enter the network, and in which precision it computes; `seed` is that of the episodes."""

    image_size: int
    bfloat16: bool = False
    augmentation: Augmentation = NO_AUGMENTATION
    seed: int = 0


class FromPixels(nn.Module):
    """A network that takes training images as loaders give them: uint8 travels, replicas do the rest."""

    def __init__(self, network: nn.Module, inputs: Inputs) -> None:
        super().__init__()
        self.network = network
        self.inputs = inputs

    def forward(self, support: torch.Tensor, query: torch.Tensor, episodes: torch.Tensor) -> torch.Tensor:
        """Scores [b, q, n] of support [b, n, k, 3, h, w], query [b, q, 3, h, w] and episodes [b]."""
        if self.inputs.augmentation.active:
            support, query = self._varied(support, query, episodes)
        else:
            support, query = (prepare(images, self.inputs.image_size) for images in (support, query))
        # here rather than around the step, because it holds for one thread, and DataParallel has several
        with torch.autocast(support.device.type, torch.bfloat16, enabled=self.inputs.bfloat16):
            scores: torch.Tensor = self.network(support, query)
        return scores

    def _varied(
        self, support: torch.Tensor, query: torch.Tensor, episodes: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Both, augmented and normalised: a function of the episodes' indices alone."""
        n, k = support.shape[1:3]
        images = torch.cat((support.flatten(1, 2), query), dim=1)
        keys = augmentation_keys(self.inputs.seed, "train", episodes)
        pixels = augment(images, keys, self.inputs.augmentation, self.inputs.image_size)
        varied = normalise(pixels)
        return varied[:, : n * k].unflatten(1, (n, k)), varied[:, n * k :]
