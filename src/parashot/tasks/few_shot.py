"""Few-shot accuracy as it is reported: of a network, and over the cosine of its own embedding.

e episodes · n n_way · q queries per episode
"""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from parashot.allocator import keep_freed_memory
from parashot.data.episodes import SplitName
from parashot.errors import DataError
from parashot.model.losses import accuracy
from parashot.model.network import RelationNetwork
from parashot.model.weights import load_network
from parashot.parallel.strategy import channels_last
from parashot.params import EpisodeSpec
from parashot.progress import Progress
from parashot.task import mean_and_ci95
from parashot.tasks.evaluation import EpisodeSet, draw_split, ready_images, related
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
    """Measure the network of a file, on a GPU if there is one, on `count` episodes of a split.

    transductive: how many of them are measured that way, too. Raises `ParashotError` where the file is no
    network, and `DataError` for a single transductive episode and as `draw_split` does.
    """
    if transductive == 1:
        raise DataError("1 transductive episode has no interval; take 0, or at least 2")
    keep_freed_memory()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network = channels_last(load_network(weights).to(device))
    episodes = draw_split(packed, split_name, spec, count, seed)
    _, task = judge_episodes(network, episodes, transductive)
    return task


def judge_episodes(
    network: RelationNetwork, episodes: EpisodeSet, transductive: int = 0
) -> tuple[torch.Tensor, TaskAccuracy]:
    """Scores, cosines and the relation head's own scores [3, e, q, n] of episodes, and their accuracies.

    In eval mode; the first `transductive` episodes are measured that way, too. Of episodes there are 2 or
    more, since an interval needs two; of transductive ones as well, or none. Tells how far it is.
    """
    spec = episodes.spec
    progress = Progress(
        f"{spec.n_way}-way {spec.k_shot}-shot on {episodes.split.name}", len(episodes), "episode"
    )
    judged = related(network, network.judge, episodes, progress).movedim(1, 0)
    ours, cosine, relation = (accuracy(each).double().numpy() for each in judged)
    apart = transductive_accuracies(network, episodes[:transductive])
    task = TaskAccuracy(
        spec.n_way,
        spec.k_shot,
        spec.k_query,
        len(ours),
        *mean_and_ci95(ours),
        *mean_and_ci95(cosine),
        *mean_and_ci95(relation),
        *mean_and_ci95(ours - cosine),
        len(apart),
        *(mean_and_ci95(apart) if len(apart) else (0.0, 0.0)),
    )
    return judged, task


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
