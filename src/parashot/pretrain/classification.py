"""The step of pretraining: pixels to classes, by one process on all cores or one GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import torch
from torch import nn
from torch.nn import functional as F

from parashot.data.augment import Augmentation, augment
from parashot.data.episodes import IMAGE_AUGMENTATION, SplitName, episode_keys
from parashot.data.labelled import ImageBatch
from parashot.data.pixels import normalise, prepare
from parashot.parallel.context import Context
from parashot.parallel.strategy import any_nonfinite

_MOMENTUM = 0.9


class Varied:
    """Training images as the classifier takes them: a pure function of (seed, split, step)."""

    def __init__(self, seed: int, split: SplitName, augmentation: Augmentation) -> None:
        self.seed, self.split, self.augmentation = seed, split, augmentation

    def __call__(self, batch: ImageBatch, size: int) -> torch.Tensor:
        """float32 [m, 3, size, size], normalised."""
        if not self.augmentation.active:
            return prepare(batch.images, size)
        step = torch.full((1,), batch.step, device=batch.images.device)  # no copy to wait for
        keys = episode_keys(self.seed, self.split, step, IMAGE_AUGMENTATION)
        return normalise(augment(batch.images[None], keys, self.augmentation, size)[0])


class Classification:
    """What the loop trains in pretraining: cross-entropy over classes, descended by SGD with momentum.

    `size` gives the pixels of a step's images.
    """

    reads: ClassVar[str] = "images"
    remedy: ClassVar[str] = "set a smaller pretrain.learning_rate"
    skips_nonfinite: ClassVar[bool] = False

    def __init__(
        self,
        network: nn.Module,
        pixels: Callable[[ImageBatch, int], torch.Tensor],
        size: Callable[[int], int],
        context: Context,
        *,
        weight_decay: float,
        label_smoothing: float,
        bfloat16: bool,
    ) -> None:
        self.network, self.context = network.to(context.device), context
        self._pixels, self._size = pixels, size
        self._label_smoothing, self._bfloat16 = label_smoothing, bfloat16
        self.optimizer = torch.optim.SGD(
            network.parameters(),
            momentum=_MOMENTUM,
            nesterov=True,
            weight_decay=weight_decay,
            fused=True,
        )

    def step(self, batch: ImageBatch) -> torch.Tensor:
        """Do one optimizer step; returns [3]: summed loss, images told rightly, not 0 if it met NaN."""
        images = self._pixels(batch, self._size(batch.step))
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self._bfloat16):
            scores = self.network(images)
        loss = F.cross_entropy(scores, batch.labels, label_smoothing=self._label_smoothing)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nonfinite = any_nonfinite([each.grad for each in self.network.parameters() if each.grad is not None])
        self.optimizer.step()
        right = (scores.argmax(1) == batch.labels).sum()
        total = loss.detach() * len(batch.labels)
        return torch.stack([total, right.to(total), nonfinite.to(total)])

    def set_learning_rate(self, rate: float) -> None:
        """Use `rate` from the next step on."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The network's state on the CPU."""
        return {name: value.detach().cpu().clone() for name, value in self.network.state_dict().items()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Take up a state of the network."""
        self.network.load_state_dict(state)

    def gathered(self, own: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What one process holds is whole."""
        return dict(own)

    def own_parts(self, whole: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """One process holds all."""
        return dict(whole)
