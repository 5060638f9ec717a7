"""Few-shot accuracy as it is reported: of a network, and over the cosine of its own embedding.

e episodes · n n_way · q queries per episode
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from parashot.data.episodes import EpisodeSpec, SplitName, draw_rows
from parashot.data.manifest import read_manifest
from parashot.data.packed import PackedSplit
from parashot.data.pixels import prepare
from parashot.errors import DataError
from parashot.model.losses import accuracy
from parashot.model.network import RelationNetwork
from parashot.model.weights import load_network
from parashot.parallel.allocator import keep_freed_memory
from parashot.parallel.strategy import channels_last
from parashot.plain import printable
from parashot.progress import Progress
from parashot.records import TaskAccuracy
from parashot.train.evaluate import episode_judgements, mean_and_ci95, read_images


def measure(
    weights: Path,
    packed: Path,
    split_name: SplitName,
    spec: EpisodeSpec,
    episodes: int,
    seed: int,
    transductive: int = 0,
) -> TaskAccuracy:
    """Measure the network of a file on `episodes` episodes of a split, `transductive` of them that way, too.

    It works at the size it was trained at, on a GPU where there is one. Raises `ParashotError` where the file
    is no network, and `DataError` as `draw_task` does.
    """
    keep_freed_memory()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network = channels_last(load_network(weights).to(device))
    split, names = PackedSplit(packed, split_name), read_manifest(packed).splits[split_name].classes
    rows = draw_task(split, names, spec, episodes, seed)
    size, some = network.image_size, rows[:transductive]
    judged = judge_episodes(network, split, rows, spec, size, device)
    return task_accuracy(judged, transductive_accuracies(network, split, some, spec, size, device), spec)


def draw_task(
    split: PackedSplit, names: Sequence[str], spec: EpisodeSpec, episodes: int, seed: int
) -> npt.NDArray[np.int64]:
    """Image rows [e, n, per_class] of `episodes` episodes of a split whose classes are called `names`.

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
    return draw_rows(seed, split.name, np.arange(episodes, dtype=np.int64), sizes, spec)


def judge_episodes(
    network: RelationNetwork,
    split: PackedSplit,
    rows: npt.NDArray[np.integer[Any]],
    spec: EpisodeSpec,
    image_size: int,
    device: torch.device,
) -> torch.Tensor:
    """Scores, cosines and the relation head's own scores [3, e, q, n] of the episodes with image rows `rows`.

    Eval mode; tells how far it is.
    """
    progress = Progress(f"{spec.n_way}-way {spec.k_shot}-shot on {split.name}", len(rows), "episode")
    judged = episode_judgements(network, split, rows, spec, image_size, device, progress)
    return judged.movedim(1, 0)


def task_accuracy(
    judged: torch.Tensor, transductive: npt.NDArray[np.float64], spec: EpisodeSpec
) -> TaskAccuracy:
    """Sum up judgements [3, e, q, n] of 2 or more episodes, and `transductive` accuracies of some of them."""
    ours, cosine, relation = (accuracy(each).double().numpy() for each in judged)
    apart = mean_and_ci95(transductive) if len(transductive) > 1 else (0.0, 0.0)
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
def transductive_accuracies(
    network: RelationNetwork,
    split: PackedSplit,
    rows: npt.NDArray[np.integer[Any]],
    spec: EpisodeSpec,
    image_size: int,
    device: torch.device,
) -> npt.NDArray[np.float64]:
    """Accuracy of each episode [e], batch norm by the images of that episode alone."""
    copied = copy.deepcopy(network).eval()
    for module in copied.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.train()
    found = []
    for episode in rows:
        images = prepare(read_images(split, episode.reshape(-1)).to(device), image_size)
        per_class = images.unflatten(0, episode.shape)
        support, query = per_class[None, :, : spec.k_shot], per_class[:, spec.k_shot :].flatten(0, 1)[None]
        found.append(accuracy(copied(support, query)).double().cpu().numpy())
    return np.concatenate(found) if found else np.zeros(0)
