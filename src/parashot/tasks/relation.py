"""The Relation Network on episodes, as a task.

b episodes · n n_way · k k_shot · q queries per episode
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from parashot.allocator import LARGEST_BLOCK_OF_FRUGAL, keep_freed_memory
from parashot.data.augment import augment
from parashot.data.episode_dataset import Backend, EpisodeDataset, Episodes
from parashot.data.episodes import AUGMENTATION, episode_keys
from parashot.data.loaders import step_loader, workers_of_rank
from parashot.data.packed import PackedSplit, resident_images
from parashot.data.pixels import normalise, prepare
from parashot.errors import DataError
from parashot.model.channels import cut_channels
from parashot.model.losses import LOSSES, accuracy
from parashot.model.network import RelationNetwork, all_images, build_network, maps_of_episodes
from parashot.model.recompute import keep_less
from parashot.model.weights import begin_with_embedding, save_weights
from parashot.parallel.channel_split import Cutter
from parashot.parallel.context import Context, resolve_placement
from parashot.params import Params
from parashot.task import Batch, LayerCut, Plan, Task
from parashot.tasks.evaluation import as_saved, check_fits, draw_split, shared_episode_accuracies


@dataclass(frozen=True)
class RelationTask(Task):
    """Training of a `RelationNetwork` on the episodes of `packed`, as `params` say.

    pretrained: model file whose embedding the training begins with; None: all first weights are the seed's.
    validation_seed: seed of the validation episodes; None: that of the params.
    perturbation: share of itself by which each first weight is off, at random.
    """

    params: Params
    packed: Path
    pretrained: Path | None = None
    validation_seed: int | None = None
    perturbation: float = 0.0

    unit = "episode"
    remedy = "set a smaller train.learning_rate, or skip such steps by train.on_nonfinite=skip"

    @property
    def batchsz(self) -> int:
        return self.params.train.batchsz

    @property
    def items(self) -> int:
        return self.params.train.episodes

    @property
    def averages_buffers(self) -> bool:
        """True where batch norm takes groups of episodes: all replicas' groups count alike."""
        return self.params.model.norm_episodes > 0

    def with_params(self, **sections: object) -> RelationTask:
        """The same task with other sections of params."""
        return replace(self, params=replace(self.params, **sections))  # type: ignore[arg-type]

    def with_seed(self, seed: int) -> RelationTask:
        """The same task with other first weights and training episodes, on the same validation episodes."""
        validation_seed = self.params.seed if self.validation_seed is None else self.validation_seed
        return replace(self.with_params(seed=seed), validation_seed=validation_seed)

    def network(self) -> RelationNetwork:
        """Build the network. Raises `ParashotError` where `pretrained` holds no embedding of this kind."""
        network = build_network(self.params.model, self.params.seed)
        if self.pretrained is not None:
            begin_with_embedding(network, self.pretrained)
        if self.perturbation:
            _perturb(network, self.perturbation, torch.Generator().manual_seed(self.params.seed))
        network.norm_by_episodes(self.params.training_episode)
        if self.params.train.recompute:
            keep_less(network)
            keep_freed_memory(LARGEST_BLOCK_OF_FRUGAL)
        return network

    def dataset(self, plan: Plan, backend: Backend | None = None) -> EpisodeDataset:
        """The training split as batches of `plan`, read by `backend` (default: the one of the params)."""
        params, split = self.params, self._split()
        spec, backend = params.training_episode, backend or params.loader.backend
        return EpisodeDataset(split, spec, plan, params.seed, backend, params.model.image_size)

    def batches(
        self, plan: Plan, context: Context, first: int = 0, *, in_process: bool = False
    ) -> Iterator[Batch]:
        loader, dataset, steps = self.params.loader, self.dataset(plan), range(first, plan.steps)
        if loader.backend == "resident":
            return dataset.resident_batches(resident_images(dataset.split, context.device), steps)
        workers = 0 if in_process else loader.workers
        workers = workers_of_rank(workers, context.local_rank, context.local_world_size)
        return step_loader(dataset, steps, workers, loader.prefetch, context.device)

    def _split(self) -> PackedSplit:
        """The training split. Raises `DataError` as `check_fits` does, with the settings to change."""
        split = PackedSplit(self.packed, "train")
        try:
            check_fits(split, self.params.training_episode)
        except DataError as error:
            raise DataError(f"train.n_way, train.k_shot, episode.k_query: {error}") from error
        return split

    def ready_batches(self, plan: Plan, steps: int, context: Context) -> list[Batch]:
        """Batches of the first `steps` steps as uint8 in the host's memory, whatever the backend."""
        dataset = self.dataset(plan, "packed")
        return [dataset[step] for step in range(steps)]

    def prepare(self, data: Episodes) -> tuple[Tensor, Tensor]:
        """Support [b, n, k, 3, h, w] and query [b, q, 3, h, w], augmented, resized and normalised."""
        support, query, episodes = data
        size, recipe = self.params.model.image_size, self.params.augment
        if not recipe.active:
            return prepare(support, size), prepare(query, size)
        n, k = support.shape[1:3]
        images = torch.cat((support.flatten(1, 2), query), dim=1)
        keys = episode_keys(self.params.seed, "train", episodes, AUGMENTATION)
        varied = normalise(augment(images, keys, recipe, size))
        return varied[:, : n * k].unflatten(1, (n, k)), varied[:, n * k :]

    def forward(self, network: nn.Module, data: tuple[Tensor, Tensor]) -> Tensor:
        scores: Tensor = network(*data)
        return scores

    def loss(self, outputs: Tensor, data: Episodes) -> Tensor:
        return LOSSES[self.params.train.loss](outputs)

    def metric(self, outputs: Tensor, data: Episodes) -> Tensor:
        """Accuracy of each episode [b]."""
        return accuracy(outputs)

    def optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        """Adam; the relation head is a parameter group whose rate is scaled by `train.lr_relation`."""
        named = dict(network.named_parameters())
        head = [each for name, each in named.items() if name.startswith("relation.")]
        others = [each for name, each in named.items() if not name.startswith("relation.")]
        groups = [{"params": others, "scale": 1.0}, {"params": head, "scale": self.params.train.lr_relation}]
        used = [group for group in groups if group["params"]]  # a rank may hold one part of the network only
        # fused: one pass over each parameter and its moments, where the plain one takes a dozen
        return torch.optim.Adam(used, lr=self.params.train.learning_rate, fused=True)

    @property
    def full_learning_rate(self) -> float:
        """`train.learning_rate`, scaled with the size of the batch.

        Linearly (Goyal et al., Accurate, Large Minibatch SGD, 2017) or with its root (Krizhevsky, One Weird
        Trick, 2014, section 5).
        """
        train = self.params.train
        ratio = train.batchsz / train.lr_batchsz
        factors = {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}
        return train.learning_rate * factors[train.lr_scaling]

    def learning_rates(self, steps: int) -> Callable[[int], float]:
        """Learning rate of each of `steps` steps.

        The full rate is reached over `train.warmup_steps`, in equal parts (Goyal et al., section 2.2).
        cosine: half a cosine from the full rate to 0 (Loshchilov and Hutter, ICLR 2017, without restarts).
        """
        train, full = self.params.train, self.full_learning_rate

        def rate(step: int) -> float:
            warm = min(1.0, (step + 1) / (train.warmup_steps + 1))
            decay = 1.0 if train.schedule == "constant" else 0.5 * (1 + math.cos(math.pi * step / steps))
            return full * warm * decay

        return rate

    def validate(self, network: nn.Module, context: Context, *, last: bool) -> npt.NDArray[np.float64]:
        """Accuracy of each of the first validation episodes, shared out over the ranks [e]."""
        count = (self.params.evaluate if last else self.params.train).val_episodes
        seed = self.params.seed if self.validation_seed is None else self.validation_seed
        episodes = draw_split(self.packed, "val", self.params.tested_episode, count, seed)
        validated = self._as_saved(cast("RelationNetwork", network))
        return shared_episode_accuracies(validated, episodes, context)

    def save(self, path: Path, state: Mapping[str, Tensor]) -> None:
        """Write the network that `validate` judges."""
        network = build_network(self.params.model, self.params.seed)
        network.load_state_dict(state)
        device = resolve_placement(self.params.parallel).device_type
        save_weights(path, self.params.model, self._as_saved(network.to(device)).state_dict())

    def _as_saved(self, network: RelationNetwork) -> RelationNetwork:
        return as_saved(network, self.packed, self.pretrained, self.params.train.pretrained_share)

    def layer_cut(self) -> LayerCut:
        return LayerCut(("embedding", "relation"), _embed, _relate)

    def channel_cut(self) -> Callable[[RelationNetwork, Cutter], None] | None:
        """Only the relation head has one: the others compare all channels together."""
        return cut_channels if self.params.model.head == "relation" else None


@torch.no_grad()
def _perturb(network: nn.Module, share: float, generator: torch.Generator) -> None:
    for each in network.parameters():
        each.mul_(1 + share * torch.randn(each.shape, generator=generator))


def _embed(network: nn.Module, data: tuple[Tensor, Tensor]) -> Tensor:
    return cast("RelationNetwork", network).embed(all_images(*data))


def _relate(network: nn.Module, maps: Tensor, data: tuple[Tensor, Tensor]) -> Tensor:
    return cast("RelationNetwork", network).relate(*maps_of_episodes(maps, *data[0].shape[:3]))
