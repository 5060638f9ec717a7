"""Scores and accuracy of episodes: eval mode, each image embedded once.

e episodes · n n_way · k k_shot · q queries per episode · u different images
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch

from parashot.data.episodes import SplitName, draw_rows
from parashot.data.packed import PackedSplit
from parashot.data.pixels import prepare
from parashot.errors import DataError
from parashot.model.brownian import BrownianHead, distances, window_distances
from parashot.model.losses import accuracy
from parashot.model.network import RelationNetwork
from parashot.model.weights import average_with_embedding
from parashot.parallel.context import Context
from parashot.parallel.exchange import from_all_ranks
from parashot.params import EpisodeSpec
from parashot.plain import printable

Relate = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Support maps [b, n, k, C, h, w] and query maps [b, q, C, h, w] to what is wanted of episodes, [b, ...]."""

_IMAGES_AT_ONCE = 256
_IMAGES_OF_CENTRES = 4096
"""At most; spread over all classes."""
_MATRICES_AT_ONCE = 64

_MAP_BYTES = 2 * 2**30
"""Maps kept at a time; a split whose maps need more is evaluated in groups of episodes."""

_COMPARED_BYTES = {"cpu": 2**27, "cuda": 2**31}
"""Of what is compared at once; a head's layers take several times as much. A GPU waits for the host after
each part, so it wants large ones."""


@dataclass(frozen=True)
class EpisodeSet:
    """Episodes of one shape: the images of a split at `rows` [e, n, per_class], support images first."""

    split: PackedSplit
    spec: EpisodeSpec
    rows: npt.NDArray[np.integer[Any]]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, some: slice) -> EpisodeSet:
        return replace(self, rows=self.rows[some])


def draw_split(packed: Path, split_name: SplitName, spec: EpisodeSpec, count: int, seed: int) -> EpisodeSet:
    """Draw the first `count` episodes of a split of the folder `packed`; raises as `check_fits` does."""
    split = PackedSplit(packed, split_name)
    check_fits(split, spec)
    episodes = np.arange(count, dtype=np.int64)
    return EpisodeSet(split, spec, draw_rows(seed, split_name, episodes, split.class_sizes, spec))


def check_fits(split: PackedSplit, spec: EpisodeSpec) -> None:
    """Raise `DataError` where a split has too few classes for an episode, or one of them too few images."""
    sizes = split.class_sizes
    if spec.n_way > len(sizes):
        raise DataError(
            f"{spec.n_way}-way episodes need {spec.n_way} classes, but split {split.name} has {len(sizes)}; "
            f"take at most {len(sizes)}"
        )
    if spec.per_class > sizes.min():
        smallest = int(sizes.argmin())
        name = printable(split.manifest.classes[smallest])
        raise DataError(
            f"{spec.k_shot} shots and {spec.k_query} queries need {spec.per_class} images per class, but "
            f"{name} of split {split.name} has {sizes[smallest]}; take fewer"
        )


def episode_accuracies(network: RelationNetwork, episodes: EpisodeSet) -> npt.NDArray[np.float64]:
    """Accuracy of each episode [e], where the network is; its mode is restored."""
    if len(episodes) == 0:  # of ranks that have no share
        return np.zeros(0)
    return accuracy(related(network, network.relate, episodes)).double().numpy()


@torch.inference_mode()
def related(
    network: RelationNetwork,
    relate: Relate,
    episodes: EpisodeSet,
    tell: Callable[[int], object] = lambda done: None,
) -> torch.Tensor:
    """Apply `relate` to the maps of 1 or more episodes: [e, ...], on the CPU; the network's mode is restored.

    tell: called with the number of episodes done.
    """
    training = network.training
    network.eval()
    done, found = 0, torch.empty(0)
    one_image = ready_images(network, episodes.split, episodes.rows.reshape(-1)[:1])
    for group in _groups(episodes, network.embed(one_image).nbytes):
        for each in _related_group(network, relate, group):
            if done == 0:  # one block as well: small ones would stay where large ones were
                found = each.new_empty(len(episodes), *each.shape[1:])
            found[done : done + len(each)] = each
            done += len(each)
            tell(done)
    network.train(training)
    return found


def shared_episode_accuracies(
    network: RelationNetwork, episodes: EpisodeSet, context: Context
) -> npt.NDArray[np.float64]:
    """The same, shared out over all ranks; every rank gets all [e]."""
    mine = episode_accuracies(network, episodes[context.rank :: context.world_size])
    accuracies = np.empty(len(episodes))
    for rank, part in enumerate(from_all_ranks(mine, context)):
        accuracies[rank :: context.world_size] = part
    return accuracies


def as_saved(
    network: RelationNetwork, packed: Path, pretrained: Path | None = None, share: float = 0.0
) -> RelationNetwork:
    """`network`, or where what is saved differs from what is trained, a copy of it.

    The embedding is averaged with that of `pretrained`, of which `share` is taken. A `BrownianHead` gets
    centres of whole images at the size that it is tested with; its running ones are of crops for training.
    """
    centred = isinstance(network.relation, BrownianHead)
    if share == 0 and not centred:
        return network
    copied = copy.deepcopy(network)
    if pretrained is not None and share > 0:
        average_with_embedding(copied, pretrained, share)
    if centred:
        measure_centres(copied, PackedSplit(packed, "train"))
    return copied


@torch.inference_mode()
def measure_centres(network: RelationNetwork, split: PackedSplit) -> None:
    """Set the centres of a network's `BrownianHead` to the means over images of `split`, in eval mode."""
    head = cast("BrownianHead", network.relation)
    step = -(-len(split.images) // _IMAGES_OF_CENTRES)
    rows = np.arange(0, len(split.images), step)
    centres = (head.centre, head.joint_centre, head.window_centre)
    sums = [torch.zeros_like(each, dtype=torch.float64) for each in centres]
    network.eval()
    for begin in range(0, len(rows), _MATRICES_AT_ONCE):
        maps = network.embed(ready_images(network, split, rows[begin : begin + _MATRICES_AT_ONCE]))
        vectors = (maps.mean((-2, -1)), distances(maps), window_distances(maps))
        for centre_sum, some in zip(sums, vectors, strict=True):
            centre_sum.add_(some.sum(0, dtype=torch.float64))
    for centre, centre_sum in zip(centres, sums, strict=True):
        centre.copy_(centre_sum / len(rows))


def ready_images(
    network: RelationNetwork, split: PackedSplit, rows: npt.NDArray[np.integer[Any]]
) -> torch.Tensor:
    """Images of `rows` [m] as `network` wants them and where it is, float32 [m, 3, h, w]."""
    images = torch.from_numpy(split.images.take(rows, axis=0)).movedim(-1, -3)
    return prepare(images.to(next(network.parameters()).device), network.test_size)


def _related_group(network: RelationNetwork, relate: Relate, episodes: EpisodeSet) -> Iterator[torch.Tensor]:
    """Results of `relate` for all episodes, of as many at a time as memory bears."""
    images, position = np.unique(episodes.rows, return_inverse=True)
    maps = _maps(network, episodes.split, images)
    places = torch.from_numpy(position.reshape(episodes.rows.shape)).to(maps.device)
    k_shot = episodes.spec.k_shot
    support, query = places[:, :, :k_shot], places[:, :, k_shot:].flatten(1)
    images_of_episode = support[0].numel() + query.shape[1]
    episode_bytes = images_of_episode * network.compared_bytes(maps[0], episodes.spec.n_way)
    at_once = max(1, _COMPARED_BYTES[maps.device.type] // episode_bytes)
    for begin in range(0, len(episodes), at_once):
        some = slice(begin, begin + at_once)
        yield relate(maps[support[some]], maps[query[some]]).cpu()


def _maps(network: RelationNetwork, split: PackedSplit, rows: npt.NDArray[np.integer[Any]]) -> torch.Tensor:
    """Maps [m, C, h', w'] of the images at `rows` [m], however many.

    They lie in one block: parts that stay, between the large blocks that an embedding takes and frees, tear
    holes that its next blocks do not fit (`allocator.py`).
    """
    part = network.embed(ready_images(network, split, rows[:_IMAGES_AT_ONCE]))
    nhwc = part.is_contiguous(memory_format=torch.channels_last)
    order = torch.channels_last if nhwc else torch.contiguous_format
    shape = len(rows), *part.shape[1:]
    maps = torch.empty(shape, dtype=part.dtype, device=part.device, memory_format=order)
    maps[:_IMAGES_AT_ONCE] = part
    del part
    for begin in range(_IMAGES_AT_ONCE, len(rows), _IMAGES_AT_ONCE):
        some = slice(begin, begin + _IMAGES_AT_ONCE)
        maps[some] = network.embed(ready_images(network, split, rows[some]))
    return maps


def _groups(episodes: EpisodeSet, map_bytes: int) -> Iterator[EpisodeSet]:
    """Cut the episodes so that the maps of a group's images fit in `_MAP_BYTES`."""
    most = max(1, _MAP_BYTES // map_bytes)
    begin = 0
    while begin < len(episodes):
        end = len(episodes)
        while end > begin + 1 and len(np.unique(episodes.rows[begin:end])) > most:
            end = begin + (end - begin + 1) // 2
        yield episodes[begin:end]
        begin = end
