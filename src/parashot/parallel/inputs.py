"""From pixels to scores: what a replica does with its episodes before and around the network."""

from __future__ import annotations

from contextlib import AbstractContextManager
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

    def prepared(
        self, support: torch.Tensor, query: torch.Tensor, episodes: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Support [b, n, k, 3, h, w] and query [b, q, 3, h, w] as the network wants them.

        Both are augmented, as a function of the indices in `episodes` [b], resized and normalised.
        """
        if not self.augmentation.active:
            return prepare(support, self.image_size), prepare(query, self.image_size)
        n, k = support.shape[1:3]
        images = torch.cat((support.flatten(1, 2), query), dim=1)
        keys = augmentation_keys(self.seed, "train", episodes)
        varied = normalise(augment(images, keys, self.augmentation, self.image_size))
        return varied[:, : n * k].unflatten(1, (n, k)), varied[:, n * k :]

    def precision(self, device_type: str) -> AbstractContextManager[None]:
        """The precision to compute in, for the thread that enters it (DataParallel has several)."""
        precision: AbstractContextManager[None] = torch.autocast(
            device_type, torch.bfloat16, enabled=self.bfloat16
        )
        return precision


class FromPixels(nn.Module):
    """A network that takes training images as loaders give them: uint8 travels, replicas do the rest."""

    def __init__(self, network: nn.Module, inputs: Inputs) -> None:
        super().__init__()
        self.network = network
        self.inputs = inputs

    def forward(self, support: torch.Tensor, query: torch.Tensor, episodes: torch.Tensor) -> torch.Tensor:
        """Scores [b, q, n] of support [b, n, k, 3, h, w], query [b, q, 3, h, w] and episodes [b]."""
        prepared = self.inputs.prepared(support, query, episodes)
        with self.inputs.precision(support.device.type):
            scores: torch.Tensor = self.network(*prepared)
        return scores
