"""From the blocks of the finals to a recommendation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from parashot.questions.advice import Choice
from parashot.questions.own.records import PLAIN, OwnResults
from parashot.questions.statistics import Ranking, Resampling
from parashot.questions.text import counted, percent, times
from parashot.questions.ways.records import Way
from parashot.questions.ways.rows import WayRow, step_seconds_by_way, way_rows

STRATEGY_RANKS = {"serial": 1, "dp": 1}
"""Processes of strategies that have one whatever the number of replicas; others have one for each."""

MARGIN = 0.05
"""A way that takes at most so much longer is as good."""


@dataclass(frozen=True)
class OwnAdvice:
    """The way that is recommended, how sure that is, and a row for each finalist."""

    choice: Choice[str]
    rows: tuple[WayRow[Way], ...]

    @property
    def row(self) -> WayRow[Way]:
        """Of the way that is recommended."""
        return next(each for each in self.rows if each.way.way == self.choice.choice)

    @property
    def speedup(self) -> float:
        """Over the default."""
        return self.row.speedup.value if self.row.speedup else 1.0

    @property
    def sentence(self) -> str:
        """The recommendation."""
        if self.choice.choice == PLAIN:
            return f"Keep {in_words(self.row.way)}: {self.choice.doubt or self.choice.gains_nothing}."
        assert self.row.speedup is not None
        gain = f"{times(self.row.speedup)} as fast as the default, {in_words(self.rows[0].way)}"
        waits = f"a step waits {percent(self.row.waiting.value, 0)} of its time for data"
        doubt = f"; {self.choice.doubt}" if self.choice.doubt else ""
        return f"Train by {in_words(self.row.way)}: {gain}; {waits}{doubt}."


def advise_own(results: OwnResults) -> OwnAdvice | None:
    """Recommend the simplest of the finalists that is as good as the fastest.

    None where it was stopped before every finalist had two blocks.
    """
    resampling = Resampling()
    seconds = step_seconds_by_way(results.finals)
    if not seconds or min(map(len, seconds.values())) < 2:
        return None
    ranking = Ranking.by_time(seconds, resampling, MARGIN)
    rows = way_rows(results.finalists, results.finals, PLAIN, resampling)
    return OwnAdvice(Choice.of(ranking, _simplest_first(results.finalists)), tuple(rows))


def in_words(way: Way) -> str:
    """Strategy, workers and precision: `ddp on 2 replicas, 2 workers, bf16`."""
    workers = counted(way.workers, "worker") if way.workers else "no workers"
    return f"{way.devices}, {workers}, {way.precision}"


def to_copy(way: Way, gpus: bool) -> list[str]:
    """Lines of PyTorch that train in this way, each rank reading its share of a batch."""
    ranks = STRATEGY_RANKS.get(way.strategy, way.replicas)
    size, workers = way.batchsz // ranks, way.workers // ranks
    loader = f"DataLoader(dataset, batch_size={size}, num_workers={workers}, pin_memory={gpus}, ...)"
    lines = [f"torchrun --nproc-per-node {ranks} YOUR_SCRIPT.py"] if ranks > 1 else []
    wraps = {
        "dp": "network = torch.nn.DataParallel(network)  # on GPUs",
        "ddp": "network = torch.nn.parallel.DistributedDataParallel(network)",
        "fsdp": "torch.distributed.fsdp.fully_shard(network)",
        "allreduce": f"torch.distributed.all_reduce(each.grad.div_({ranks}))  # of each parameter",
    }
    if ranks > 1:
        loader = loader.replace("...", "sampler=DistributedSampler(dataset)")
    lines += [loader, *([wraps[way.strategy]] if way.strategy in wraps else [])]
    if way.precision == "bf16":
        lines.append(
            f'with torch.autocast("{"cuda" if gpus else "cpu"}", torch.bfloat16):  # around the loss'
        )
    return lines


def _simplest_first(ways: Sequence[Way]) -> list[str]:
    """The default, then fewer replicas, what PyTorch wraps, fewer workers, full precision."""

    def cost(way: Way) -> tuple[bool, int, bool, int, bool]:
        by_hand = way.strategy == "allreduce"
        return way.way != PLAIN, way.replicas, by_hand, way.workers, way.precision != "fp32"

    return [each.way for each in sorted(ways, key=cost)]
