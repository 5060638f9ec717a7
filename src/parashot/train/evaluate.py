"""Scores and accuracy of packed episodes: eval mode, each image embedded once.

e episodes · n n_way · k k_shot · q queries per episode · u different images
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import distributed as dist

from parashot.data.episodes import EpisodeSpec
from parashot.data.packed import PackedSplit
from parashot.data.pixels import prepare
from parashot.model.losses import accuracy
from parashot.model.network import RelationNetwork
from parashot.parallel.context import Context

Relate = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Support maps [b, n, k, C, h, w] and query maps [b, q, C, h, w] to what is wanted of episodes, [b, ...]."""

_IMAGES_AT_ONCE = 256
_MAP_BYTES = 2 * 2**30
"""Maps kept at a time; a split whose maps need more is evaluated in groups of episodes."""

_PAIR_BYTES = 2**27
"""Of joined maps, should the network join them; its layers take several times as much."""


def episode_accuracies(
    network: RelationNetwork,
    split: PackedSplit,
    rows: npt.NDArray[np.integer[Any]],
    spec: EpisodeSpec,
    image_size: int,
    device: torch.device,
) -> npt.NDArray[np.float64]:
    """Accuracy of each episode given by its image rows [e, n, per_class]; returns [e].

    The mode is restored.
    """
    scores = episode_scores(network, split, rows, spec, image_size, device)
    return accuracy(scores).double().numpy()


def episode_scores(
    network: RelationNetwork,
    split: PackedSplit,
    rows: npt.NDArray[np.integer[Any]],
    spec: EpisodeSpec,
    image_size: int,
    device: torch.device,
) -> torch.Tensor:
    """Relation scores before the sigmoid, on the CPU, of the same episodes; [e, n · k_query, n].

    The mode is restored.
    """
    if len(rows) == 0:
        return torch.zeros(0, spec.n_way * spec.k_query, spec.n_way)
    return _related(network, network.relate, split, rows, spec, image_size, device)


def episode_judgements(
    network: RelationNetwork,
    split: PackedSplit,
    rows: npt.NDArray[np.integer[Any]],
    spec: EpisodeSpec,
    image_size: int,
    device: torch.device,
    tell: Callable[[int], object] = lambda done: None,
) -> torch.Tensor:
    """What `RelationNetwork.judge` says of the same episodes, on the CPU; [e, 3, n · k_query, n].

    `tell` is called with how many are done.
    """
    done = 0

    def judge(support_maps: torch.Tensor, query_maps: torch.Tensor) -> torch.Tensor:
        nonlocal done
        judged = network.judge(support_maps, query_maps)
        done += len(judged)
        tell(done)
        return judged

    return _related(network, judge, split, rows, spec, image_size, device)


@torch.inference_mode()
def _related(
    network: RelationNetwork,
    relate: Relate,
    split: PackedSplit,
    rows: npt.NDArray[np.integer[Any]],
    spec: EpisodeSpec,
    image_size: int,
    device: torch.device,
) -> torch.Tensor:
    training = network.training
    network.eval()
    try:
        probe = network.embed(prepare(read_images(split, rows.reshape(-1)[:1]).to(device), image_size))
        groups = [
            _related_group(network, relate, split, group, spec, image_size, device)
            for group in _groups(rows, probe.nbytes)
        ]
    finally:
        network.train(training)
    return torch.cat(groups)


def shared_episode_accuracies(
    network: RelationNetwork,
    split: PackedSplit,
    rows: npt.NDArray[np.integer[Any]],
    spec: EpisodeSpec,
    image_size: int,
    context: Context,
) -> npt.NDArray[np.float64]:
    """The same with the episodes shared out over all ranks; every rank gets all [e]."""
    if context.ranks == 1:
        return episode_accuracies(network, split, rows, spec, image_size, context.device)
    mine = episode_accuracies(
        network, split, rows[context.rank :: context.ranks], spec, image_size, context.device
    )
    parts: list[npt.NDArray[np.float64] | None] = [None] * context.ranks
    dist.all_gather_object(parts, mine, group=context.group)
    accuracies = np.empty(len(rows))
    for rank, part in enumerate(parts):
        accuracies[rank :: context.ranks] = part
    return accuracies


def mean_and_ci95(accuracies: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Mean over episodes and half width of its 95% interval, 1.96 standard errors."""
    return float(accuracies.mean()), float(1.96 * accuracies.std(ddof=1) / np.sqrt(len(accuracies)))


def _related_group(
    network: RelationNetwork,
    relate: Relate,
    split: PackedSplit,
    rows: npt.NDArray[np.integer[Any]],
    spec: EpisodeSpec,
    image_size: int,
    device: torch.device,
) -> torch.Tensor:
    images, position = np.unique(rows, return_inverse=True)
    position = torch.from_numpy(position.reshape(rows.shape)).to(device)
    maps = torch.cat(
        [
            network.embed(
                prepare(read_images(split, images[begin : begin + _IMAGES_AT_ONCE]).to(device), image_size)
            )
            for begin in range(0, len(images), _IMAGES_AT_ONCE)
        ]
    )
    support, query = position[:, :, : spec.k_shot], position[:, :, spec.k_shot :].flatten(1)
    at_once = max(1, _PAIR_BYTES // (query.shape[1] * spec.n_way * 2 * maps[0].nbytes))
    scored = [
        relate(maps[support[begin : begin + at_once]], maps[query[begin : begin + at_once]]).cpu()
        for begin in range(0, len(rows), at_once)
    ]
    return torch.cat(scored)


def _groups(rows: npt.NDArray[np.integer[Any]], map_bytes: int) -> Iterator[npt.NDArray[np.integer[Any]]]:
    """Cut the episodes so that the maps of a group's images fit in `_MAP_BYTES`."""
    most = max(1, _MAP_BYTES // map_bytes)
    begin = 0
    while begin < len(rows):
        end = len(rows)
        while end > begin + 1 and len(np.unique(rows[begin:end])) > most:
            end = begin + (end - begin + 1) // 2
        yield rows[begin:end]
        begin = end


def read_images(split: PackedSplit, rows: npt.NDArray[np.integer[Any]]) -> torch.Tensor:
    """Images of `rows` [m] as uint8 [m, 3, h, w]."""
    return torch.from_numpy(split.images.take(rows, axis=0)).movedim(-1, -3)
