"""The embedding as a classifier of all training classes, as a task: before any episode.

Chen et al., Meta-Baseline (ICCV 2021), section 3.

    m images · c classes of the training split
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from parashot.data.augment import augment
from parashot.data.dropblock import drop_blocks
from parashot.data.episodes import IMAGE_AUGMENTATION, IMAGE_DROPS, IMAGE_ROTATION, episode_keys, uniforms
from parashot.data.labelled import LabelledImages, labelled_batches, steps_per_epoch
from parashot.data.packed import PackedSplit
from parashot.data.pixels import normalise, prepare
from parashot.model.classifier import ROTATIONS, ImageClassifier
from parashot.model.losses import accuracy
from parashot.model.network import build_network
from parashot.model.weights import save_weights
from parashot.parallel.context import Context
from parashot.params import Params
from parashot.task import Batch, Plan, Task
from parashot.tasks.evaluation import as_saved, draw_split, related
from parashot.tasks.muon import Muon

_MOMENTUM = 0.9

_INNER = "network."
"""Prefix of the Relation Network in the state of the classifier."""

_RISING_SHARE = 0.2
"""Share of the steps over which the learning rate rises to its peak."""


@dataclass(frozen=True)
class PretrainingTask(Task):
    """Training of an `ImageClassifier` on the images of `packed`, as `params.pretrain` says."""

    params: Params
    packed: Path

    unit = "image"
    remedy = "set a smaller pretrain.learning_rate"

    @property
    def batchsz(self) -> int:
        return self.params.pretrain.batchsz

    @property
    def items(self) -> int:
        return self.params.pretrain.epochs * self.epoch_steps * self.batchsz

    @cached_property
    def class_sizes(self) -> npt.NDArray[np.int64]:
        return PackedSplit(self.packed, "train").class_sizes

    @property
    def epoch_steps(self) -> int:
        return steps_per_epoch(self.class_sizes, self.batchsz)

    def network(self) -> ImageClassifier:
        params, classes = self.params, len(self.class_sizes)
        network = build_network(params.model, params.seed)
        drop = partial(drop_blocks, share=params.pretrain.dropblock)
        rotation = params.pretrain.rotated > 0
        return ImageClassifier(network, classes, params.seed, rotation=rotation, drop=drop)

    def batches(
        self, plan: Plan, context: Context, first: int = 0, *, in_process: bool = False
    ) -> Iterator[Batch]:
        split = PackedSplit(self.packed, "train")
        return labelled_batches(split, self.params.seed, plan, context.device, first)

    def prepare(self, data: LabelledImages) -> tuple[Tensor, Tensor | None]:
        """Images as the network sees them, and keys int64 [m] by which it drops parts of maps, if it does."""
        drops = self.params.pretrain.dropblock > 0
        keys = episode_keys(self.params.seed, "train", data[2], IMAGE_DROPS) if drops else None
        return self._images(data), keys

    def _images(self, data: LabelledImages) -> Tensor:
        images, _, indices, step = data
        size, recipe = self.image_size(step), self.params.augment
        if recipe.active:
            keys = episode_keys(self.params.seed, "train", indices, IMAGE_AUGMENTATION)
            ready = normalise(augment(images[:, None], keys, recipe, size)[:, 0])
        else:
            ready = prepare(images, size)
        return rotate(ready, self.rotations(indices)) if self.params.pretrain.rotated else ready

    def rotations(self, indices: Tensor) -> Tensor:
        """Quarter turns [m], 0 to 3, of the images with these indices int64 [m]."""
        share = self.params.pretrain.rotated
        draws = uniforms(episode_keys(self.params.seed, "train", indices, IMAGE_ROTATION), 1)[:, 0]
        which = (draws / share * 3).long().clamp_max(2)  # a quotient may be rounded to 1
        return torch.where(draws < share, 1 + which, 0)

    def image_size(self, step: int) -> int:
        pretrain = self.params.pretrain
        steps = pretrain.epochs * self.epoch_steps
        return pretrain.small_size if step < pretrain.small_share * steps else self.params.model.image_size

    def forward(self, network: nn.Module, data: tuple[Tensor, Tensor | None]) -> Tensor:
        """Scores of each layer [m, c], side by side, and with rotated images [m, 4]."""
        scores: Tensor = network(*data)
        return scores

    def loss(self, outputs: Tensor, data: LabelledImages) -> Tensor:
        """Cross-entropy of each image [m], with label smoothing, of all layers together."""
        pretrain, classes = self.params.pretrain, len(self.class_sizes)
        losses = []
        if pretrain.rotated:
            outputs, turned = outputs[:, :-ROTATIONS], outputs[:, -ROTATIONS:]
            losses.append(F.cross_entropy(turned, self.rotations(data[2]), reduction="none"))
        smoothing = pretrain.label_smoothing
        for scores in outputs.split(classes, dim=1):
            losses.append(F.cross_entropy(scores, data[1], label_smoothing=smoothing, reduction="none"))
        return torch.stack(losses).sum(0)

    def metric(self, outputs: Tensor, data: LabelledImages) -> Tensor:
        """1 for each image classified correctly, else 0 [m]."""
        return (outputs.detach()[:, : len(self.class_sizes)].argmax(1) == data[1]).float()

    def optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        """SGD with Nesterov's momentum, or Muon."""
        pretrain = self.params.pretrain
        rate, decay = pretrain.learning_rate, pretrain.weight_decay
        if pretrain.optimizer == "muon":
            return Muon(network, rate, _MOMENTUM, decay)
        return torch.optim.SGD(
            network.parameters(), rate, _MOMENTUM, weight_decay=decay, nesterov=True, fused=True
        )

    def learning_rates(self, steps: int) -> Callable[[int], float]:
        """One cycle: a rise to the full rate, then half a cosine down to 0.

        Smith and Topin, Super-Convergence (2017), with the cosine of Loshchilov and Hutter (ICLR 2017).
        """
        full, peak = self.params.pretrain.learning_rate, max(1, round(_RISING_SHARE * steps))

        def rate(step: int) -> float:
            if step < peak:
                return full * (step + 1) / peak
            return full * 0.5 * (1 + math.cos(math.pi * (step - peak) / max(1, steps - peak)))

        return rate

    def validate(self, network: nn.Module, context: Context, *, last: bool) -> npt.NDArray[np.float64]:
        """Accuracy of validation episodes [e], by the cosine of the embedding or by what a `bdc` head has."""
        inner = as_saved(cast("ImageClassifier", network).network, self.packed)
        relate = inner.relate if self.params.model.head == "bdc" else inner.cosine
        count = (self.params.evaluate if last else self.params.train).val_episodes
        episodes = draw_split(self.packed, "val", self.params.tested_episode, count, self.params.seed)
        return accuracy(related(inner, relate, episodes)).double().numpy()

    def save(self, path: Path, state: Mapping[str, Tensor]) -> None:
        """Write the network without its classifier: a model file that trainings begin with."""
        inner = {name.removeprefix(_INNER): value for name, value in state.items() if name.startswith(_INNER)}
        save_weights(path, self.params.model, inner)


def rotate(images: Tensor, quarters: Tensor) -> Tensor:
    """Rotate square images [m, 3, size, size] by 90 degrees, `quarters` [m] times each."""
    result = images
    for count in range(1, ROTATIONS):
        result = torch.where((quarters == count)[:, None, None, None], images.rot90(count, (-2, -1)), result)
    return result.contiguous(memory_format=torch.channels_last)
