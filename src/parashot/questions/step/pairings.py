"""Can joining support and query be avoided? Both pairings: the same scores, and the time of each."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from parashot.data.batches import Batch
from parashot.data.pixels import prepare
from parashot.parallel.context import Context, alone
from parashot.params import Pairing, Params
from parashot.questions.statistics import Resampling, ratio_interval
from parashot.questions.timed import TimedStrategy, in_turn
from parashot.train.assemble import new_strategy, ready_batches

PAIRINGS: tuple[Pairing, ...] = ("concat", "split")


@dataclass(frozen=True)
class PairingTimes:
    """Seconds of a serial step by pairing, round by round, and how far the scores lie apart."""

    seconds: Mapping[Pairing, list[float]]
    largest_difference: float

    def metrics(self, resampling: Resampling) -> dict[str, float]:
        """Flat numbers, the ratio concat / split with its interval."""
        ratio = ratio_interval(self.seconds["concat"], self.seconds["split"], resampling)
        return {
            "concat_split_max_difference": self.largest_difference,
            "concat_split_ratio": ratio.value,
            "concat_split_ratio_low": ratio.low,
            "concat_split_ratio_high": ratio.high,
        }


def compare_pairings(context: Context, params: Params, packed: Path) -> PairingTimes:
    """Time single steps of both pairings in turn, after one each to warm up."""
    mine = alone(context)
    strategies = {pairing: new_strategy("serial", params, mine, pairing) for pairing in PAIRINGS}
    timed = {
        pairing: TimedStrategy(
            strategy,
            ready_batches(params, packed, strategy, params.train.batchsz, 1),
            context.placement.threads_per_replica,
        )
        for pairing, strategy in strategies.items()
    }
    difference = _largest_difference(timed, timed["split"].batches[0], params)
    steps = {pairing: partial(each.seconds, 1) for pairing, each in timed.items()}
    return PairingTimes(in_turn(steps, params.parallel.bench.blocks), difference)


@torch.no_grad()
def _largest_difference(timed: Mapping[Pairing, TimedStrategy], batch: Batch, params: Params) -> float:
    """Largest difference between the scores of both pairings, in float64 and eval mode, on one episode."""
    scores = []
    for each in timed.values():
        device = each.strategy.context.device
        network = copy.deepcopy(each.strategy.network).double().eval()
        support = prepare(batch.support[:1].to(device), params.model.image_size).double()
        query = prepare(batch.query[:1].to(device), params.model.image_size).double()
        scores.append(network(support, query))
    return float((scores[0] - scores[1]).abs().max())
