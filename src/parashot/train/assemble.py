"""The parts of a training, from params: its episodes, and a strategy around a network of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from parashot.data.batches import Batch, Plan
from parashot.data.episodes import EpisodeSpec
from parashot.data.loaders import Backend, EpisodeDataset, episode_loader, workers_of_rank
from parashot.data.packed import PackedSplit
from parashot.model.network import RelationNetwork, build_network
from parashot.model.recompute import keep_less
from parashot.model.weights import begin_with_embedding
from parashot.parallel.allocator import LARGEST_BLOCK_OF_FRUGAL, keep_freed_memory
from parashot.parallel.context import Context
from parashot.parallel.registry import build_strategy
from parashot.parallel.strategy import Strategy
from parashot.params import Pairing, Params
from parashot.train.evaluate import EpisodeSet, shared_episode_accuracies
from parashot.train.objective import build_objective, optimizer_maker


def training_episodes(
    params: Params, packed: Path, plan: Plan, backend: Backend | None = None
) -> EpisodeDataset:
    """The training split as batches of `plan`, read by `backend` (by default the one of `params.loader`)."""
    episode = params.episode
    return EpisodeDataset(
        PackedSplit(packed, "train"),
        EpisodeSpec(episode.n_way, episode.k_shot, episode.k_query),
        plan,
        params.seed,
        backend or params.loader.backend,
        params.model.image_size,
    )


def training_batches(
    params: Params, packed: Path, plan: Plan, context: Context, first: int = 0
) -> Iterator[Batch]:
    """This rank's batches of `plan` from step `first` on, by its share of the workers of `params.loader`."""
    loader = params.loader
    workers = workers_of_rank(loader.workers, context.local_rank, context.local_ranks)
    episodes = training_episodes(params, packed, plan)
    return episode_loader(episodes, workers, loader.prefetch, context.device, first)


def validate(
    network: RelationNetwork, params: Params, packed: Path, episodes: int, context: Context
) -> npt.NDArray[np.float64]:
    """Accuracy of each of the first `episodes` packed validation episodes, shared out over the ranks."""
    split = PackedSplit(packed, "val")
    spec = EpisodeSpec(params.episode.n_way, params.episode.k_shot, params.evaluate.k_query)
    return shared_episode_accuracies(network, EpisodeSet(split, spec, split.episodes[:episodes]), context)


def ready_batches(params: Params, packed: Path, strategy: Strategy, batchsz: int, steps: int) -> list[Batch]:
    """What this rank reads in the first `steps` steps, as uint8 in memory, so that no loading is timed."""
    context = strategy.context
    plan = strategy.plan(steps * batchsz, batchsz, context.rank, context.ranks)
    episodes = training_episodes(params, packed, plan, "packed")
    return [episodes[step] for step in range(steps)]


def new_strategy(
    name: str,
    params: Params,
    context: Context,
    pairing: Pairing | None = None,
    pretrained: Path | None = None,
) -> Strategy:
    """A strategy around a network of its own: the same first weights for every strategy.

    They are a function of the seed, but for an embedding that `pretrained` holds, a model file. What is still
    `auto` in params is what never fails: fp32, not compiled, the pairing of less work.

    Raises `ParashotError` where `pretrained` holds no embedding of this kind.
    """
    network = build_network(replace(params.model, pairing=pairing or params.model.pairing), params.seed)
    if pretrained is not None:
        begin_with_embedding(network, pretrained)
    if params.train.recompute:
        keep_less(network)
        keep_freed_memory(LARGEST_BLOCK_OF_FRUGAL)
    if params.train.compile in {"default", "reduce-overhead"}:
        network.compile(mode=params.train.compile)
    parts = (build_objective(params), optimizer_maker(params), context, params.parallel)
    return build_strategy(name, network, *parts)
