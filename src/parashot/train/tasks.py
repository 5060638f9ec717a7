"""Few-shot accuracy as it is reported: of a network, and over the cosine of its own embedding.

e episodes · n n_way · q queries per episode
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from parashot.data.episodes import EpisodeSpec, SplitName, draw_rows
from parashot.data.manifest import read_manifest
from parashot.data.packed import PackedSplit
from parashot.errors import DataError
from parashot.model.losses import accuracy
from parashot.model.network import RelationNetwork
from parashot.model.weights import load_network
from parashot.parallel.allocator import keep_freed_memory
from parashot.parallel.strategy import channels_last
from parashot.plain import printable
from parashot.progress import Progress
from parashot.train.evaluate import EpisodeSet, mean_and_ci95, ready_images, related
from parashot.train.records import TaskAccuracy


def measure(
    weights: Path,
    packed: Path,
    split_name: SplitName,
    spec: EpisodeSpec,
    count: int,
    seed: int,
    transductive: int = 0,
) -> TaskAccuracy:
    """Measure the network of a file on `count` episodes of a split, `transductive` of them that way, too.

    It works at the size it was trained at, on a GPU where there is one. Raises `ParashotError` where the file
    is no network, and `DataError` for a single transductive episode and as `draw_episodes` does.
    """
    if transductive == 1:
        raise DataError("1 transductive episode has no interval; take 0, or at least 2")
    keep_freed_memory()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network = channels_last(load_network(weights).to(device))
    names = read_manifest(packed).splits[split_name].classes
    episodes = draw_episodes(PackedSplit(packed, split_name), names, spec, count, seed)
    judged = judge_episodes(network, episodes)
    return task_accuracy(judged, transductive_accuracies(network, episodes[:transductive]), spec)


def draw_episodes(
    split: PackedSplit, names: Sequence[str], spec: EpisodeSpec, count: int, seed: int
) -> EpisodeSet:
    """Draw the first `count` episodes of a split whose classes are called `names`.

    Raises `DataError` where the split has too few classes, or one of them too few images.
    """
    sizes = split.class_sizes
    if spec.n_way > len(sizes):
        raise DataError(
            f"{spec.n_way}-way episodes need {spec.n_way} classes, but split {split.name} has {len(sizes)}; "
            f"take at most {len(sizes)}"
        )
    if spec.per_class > sizes.min():
        smallest = int(sizes.argmin())
        raise DataError(
            f"{spec.k_shot} shots and {spec.k_query} queries need {spec.per_class} images per class, but "
            f"{printable(names[smallest])} of split {split.name} has {sizes[smallest]}; take fewer"
        )
    return EpisodeSet(split, spec, draw_rows(seed, split.name, np.arange(count, dtype=np.int64), sizes, spec))


def judge_episodes(network: RelationNetwork, episodes: EpisodeSet) -> torch.Tensor:
    """Scores, cosines and the relation head's own scores [3, e, q, n] of episodes, in eval mode.

    Tells how far it is.
    """
    spec = episodes.spec
    progress = Progress(
        f"{spec.n_way}-way {spec.k_shot}-shot on {episodes.split.name}", len(episodes), "episode"
    )
    return related(network, network.judge, episodes, progress).movedim(1, 0)


def task_accuracy(
    judged: torch.Tensor, transductive: npt.NDArray[np.float64], spec: EpisodeSpec
) -> TaskAccuracy:
    """Sum up judgements [3, e, q, n] and the accuracies `transductive`.

    Both are of 2 or more episodes, since an interval needs two; the latter may be of none.
    """
    ours, cosine, relation = (accuracy(each).double().numpy() for each in judged)
    apart = mean_and_ci95(transductive) if len(transductive) else (0.0, 0.0)
    return TaskAccuracy(
        spec.n_way,
        spec.k_shot,
        spec.k_query,
        len(ours),
        *mean_and_ci95(ours),
        *mean_and_ci95(cosine),
        *mean_and_ci95(relation),
        *mean_and_ci95(ours - cosine),
        len(transductive),
        *apart,
    )


@torch.inference_mode()
def transductive_accuracies(network: RelationNetwork, episodes: EpisodeSet) -> npt.NDArray[np.float64]:
    """Accuracy of each episode [e], batch norm by the images of that episode alone."""
    copied = copy.deepcopy(network).eval()
    for module in copied.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.train()
    found, k_shot = [np.zeros(0)], episodes.spec.k_shot
    for episode in episodes.rows:
        per_class = ready_images(network, episodes.split, episode.reshape(-1)).unflatten(0, episode.shape)
        support, query = per_class[None, :, :k_shot], per_class[:, k_shot:].flatten(0, 1)[None]
        found.append(accuracy(copied(support, query)).double().cpu().numpy())
    return np.concatenate(found)
