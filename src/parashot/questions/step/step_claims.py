"""What is said of one replica's step, tried here: accumulated gradients, and blocks computed again."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from parashot.data.batches import Batch, Plan
from parashot.data.pixels import prepare
from parashot.model.losses import LOSSES
from parashot.model.network import RelationNetwork, build_network
from parashot.parallel.context import Context, alone
from parashot.params import Params
from parashot.questions.statistics import Resampling, ratio_interval
from parashot.questions.timed import TimedStrategy, in_turn
from parashot.train.assemble import new_strategy, ready_batches, training_episodes

_EPISODES, _PARTS = 4, 2
"""Of the batch that is computed whole and in parts."""


@dataclass(frozen=True)
class StepTrials:
    """Differences of gradients, relative to the largest gradient; bytes and seconds with and without."""

    difference_fixed: float
    difference_training: float
    plain_bytes: int
    recompute_bytes: int
    plain_seconds: list[float]
    recompute_seconds: list[float]

    def metrics(self, resampling: Resampling) -> dict[str, float]:
        """Flat numbers, ratios of recomputing over not, with the interval of the time."""
        slower = ratio_interval(self.recompute_seconds, self.plain_seconds, resampling)
        return {
            "accumulation_difference_fixed": self.difference_fixed,
            "accumulation_difference_training": self.difference_training,
            "recompute_kept_bytes": self.plain_bytes,
            "recompute_kept_ratio": self.recompute_bytes / self.plain_bytes,
            "recompute_time_ratio": slower.value,
            "recompute_time_ratio_low": slower.low,
            "recompute_time_ratio_high": slower.high,
        }


def try_steps(context: Context, params: Params, packed: Path) -> StepTrials:
    """Try both on one replica."""
    mine = alone(context)
    timed = {again: _timed(mine, params, packed, again) for again in (False, True)}
    kept = {again: _kept_bytes(each) for again, each in timed.items()}
    steps = {again: partial(each.seconds, 1) for again, each in timed.items()}
    seconds = in_turn(steps, params.parallel.bench.blocks)
    batch = training_episodes(params, packed, Plan(_EPISODES, _EPISODES), "packed")[0].to(mine.device)
    return StepTrials(
        difference_fixed=_difference(params, batch, training=False),
        difference_training=_difference(params, batch, training=True),
        plain_bytes=kept[False],
        recompute_bytes=kept[True],
        plain_seconds=seconds[False],
        recompute_seconds=seconds[True],
    )


def _timed(context: Context, params: Params, packed: Path, recompute: bool) -> TimedStrategy:
    """One replica's step, not compiled: a compiled network decides itself what it computes again."""
    way = replace(params, train=replace(params.train, recompute=recompute, compile="none"))
    strategy = new_strategy("serial", way, context)
    batches = ready_batches(way, packed, strategy, params.train.batchsz, 1)
    return TimedStrategy(strategy, batches, context.placement.threads_per_replica)


def _kept_bytes(timed: TimedStrategy) -> int:
    """Bytes that a step's forward pass keeps for backward, beside parameters."""
    own = {each.untyped_storage().data_ptr() for each in timed.strategy.network.parameters()}
    with _noting_kept() as kept:
        timed.seconds(1)
    return sum(size for place, size in kept.items() if place not in own)


@contextmanager
def _noting_kept() -> Iterator[dict[int, int]]:
    """Sizes of the memory blocks that autograd keeps, by address.

    A block is held as long as it is noted, so that no address stands for two.
    """
    sizes: dict[int, int] = {}
    held: list[torch.Tensor] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        held.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        yield sizes
    held.clear()


def _difference(params: Params, batch: Batch, *, training: bool) -> float:
    """Largest difference between the gradients of a batch in parts and in one, over the largest gradient."""
    network = build_network(params.model, params.seed).double().to(batch.support.device).train(training)
    whole = _gradients(copy.deepcopy(network), params, batch, 1)
    parts = _gradients(network, params, batch, _PARTS)
    largest = max(float(each.abs().max()) for each in whole)
    return (
        max(float((ours - theirs).abs().max()) for ours, theirs in zip(parts, whole, strict=True)) / largest
    )


def _gradients(network: RelationNetwork, params: Params, batch: Batch, parts: int) -> list[torch.Tensor]:
    size = params.model.image_size
    for part in batch.parts(parts):
        scores = network(prepare(part.support, size).double(), prepare(part.query, size).double())
        (LOSSES[params.train.loss](scores).sum() / batch.total).backward()
    return [each.grad for each in network.parameters() if each.grad is not None]
