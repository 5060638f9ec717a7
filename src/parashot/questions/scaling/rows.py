"""Seconds per step, speedup and efficiency predicted for devices that are not here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import numpy as np

from parashot.errors import RecordError, UsageError
from parashot.questions.scaling.cost_model import Cluster, Replica, Wire, fit_line, predicted_seconds
from parashot.questions.scaling.links import HERE, LINKS, parse_link
from parashot.questions.statistics import (
    Draws,
    Floats,
    Interval,
    by_round,
    draw_rounds,
    drawn_interval,
    median_of_rounds,
)
from parashot.questions.strategies.records import CostStep, StrategyResults
from parashot.questions.strategies.rows import BASE, hidden_share, step_seconds

Mode = Literal["strong", "weak"]
MODES: tuple[Mode, ...] = ("strong", "weak")
"""strong: batchsz stays, each replica's share shrinks; weak: each replica has batchsz episodes of its own."""

PREDICTED = "ddp"
"""The strategy whose gradients, messages and overlap a prediction is made of."""

MOST_DEVICES = 1_000_000

NOT_MEASURED = Interval(0.0, 0.0, 1.0)
"""The hidden share where no overlap was seen: none counts as hidden, the interval reaches to all of it."""


@dataclass(frozen=True)
class ScalingRow:
    """A prediction for one number of devices; `low` and `high` come from resampled blocks."""

    link: str  # between nodes
    mode: Mode
    devices: int
    nodes: int
    replicas: int  # that take part: a step has no more than it has episodes
    batchsz: int  # episodes per step, over all replicas
    seconds_per_step: Interval
    speedup: Interval  # of episodes per second, over one device
    efficiency: Interval  # speedup / devices


@dataclass(frozen=True)
class CheckedRow:
    """A prediction beside what was measured."""

    variant: str
    devices: int
    predicted: Interval  # seconds per step
    measured: Interval
    error: float  # predicted / measured - 1


@dataclass(frozen=True)
class Predictor:
    """The fitted model: its arrays hold the fit to all rounds, then one value per resample."""

    replica: Replica
    here: Wire | None  # None: only one replica, so no message was measured
    gradient_bytes: int
    messages: int  # per step
    hidden: Interval | None  # share of the messages' time
    batchsz: int
    per_node: int  # replicas of this machine
    rounds: int
    confidence: float

    @classmethod
    def of(cls, bench: StrategyResults, confidence: float) -> Predictor:
        """Fit the model. Raises `RecordError` where what it needs was not measured."""
        if not bench.cost_steps:
            raise RecordError(
                "results/strategies/cost_steps.csv: steps of several sizes of one replica are needed to "
                "predict; run `dvc repro -f -s strategy-bench`"
            )
        seen = {each.variant: each for each in bench.anatomy}
        rounds = len({each.round for each in bench.cost_steps})
        drawn = np.vstack([np.arange(rounds), draw_rounds(rounds)])
        step = seen.get(PREDICTED, next(iter(seen.values())))
        sent = [(each.bytes, each.round, each.seconds / each.calls) for each in bench.cost_messages]
        return cls(
            replica=_fit_replica(bench.cost_steps, drawn),
            here=Wire.fitted(HERE, bench.cost_messages[0].ranks, *_medians(sent, drawn)) if sent else None,
            gradient_bytes=step.gradient_bytes,
            messages=max(1, step.all_reduces),
            hidden=hidden_share(PREDICTED, bench.shares, confidence),
            batchsz=bench.variants[0].batchsz,
            per_node=max(each.busy for each in bench.cost_steps),
            rounds=rounds,
            confidence=confidence,
        )

    def rows(
        self,
        link: str,
        devices: Sequence[int],
        per_node: int | None = None,
        within: str | None = None,
        batchsz: int | None = None,
    ) -> list[ScalingRow]:
        """Predict strong, then weak scaling over `link` between nodes.

        A node is by default this machine: as many replicas, joined by what joins them here.
        Raises `UsageError`.
        """
        between = self._wire(link)
        inside = self._wire(within) if within else self.here or between
        size, on_node = batchsz or self.batchsz, per_node or self.per_node
        alone = self._seconds(Cluster(1, 1, inside, between), size)[0]
        rows = []
        for mode, count in product(MODES, devices):
            total = size if mode == "strong" else size * count
            replicas = min(count, total)
            seconds = self._seconds(Cluster(replicas, on_node, inside, between), -(-total // replicas))
            speedup = self._interval([total / size * alone / each for each in seconds])
            row = ScalingRow(
                link=between.name,
                mode=mode,
                devices=count,
                nodes=-(-count // on_node),
                replicas=replicas,
                batchsz=total,
                seconds_per_step=self._interval(seconds),
                speedup=speedup,
                efficiency=speedup.scaled(1 / count),
            )
            rows.append(row)
        return rows

    def _wire(self, name: str) -> Wire:
        """Find a link by name, `here` among them. Raises `UsageError`."""
        if name != HERE:
            return parse_link(name)
        if self.here is None:
            raise UsageError(
                f"link 'here' was not measured; choose one of {', '.join(LINKS)}, or give GB/s,latency in µs"
            )
        return self.here

    def _seconds(self, cluster: Cluster, episodes: int) -> list[Floats]:
        """Seconds of a step with the hidden share as it is, and at both ends of its interval."""
        hidden = self.hidden or NOT_MEASURED
        return [
            predicted_seconds(self.replica, cluster, episodes, self.gradient_bytes, self.messages, share)
            for share in (hidden.value, hidden.low, hidden.high)
        ]

    def _interval(self, drawn: Sequence[Floats]) -> Interval:
        """The first one's value, and what all of them span."""
        found = [drawn_interval(float(each[0]), each[1:], self.rounds, self.confidence) for each in drawn]
        return Interval(found[0].value, min(each.low for each in found), max(each.high for each in found))


def parse_devices(text: str) -> list[int]:
    """Read `1,2,4`. Raises `UsageError`."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and 1 <= int(word) <= MOST_DEVICES for word in words):
        raise UsageError(f"--gpus {text!r}: whole numbers from 1 to {MOST_DEVICES:,} are needed, as in 1,2,4")
    return sorted({int(word) for word in words})


def shown_rows(predictor: Predictor, checked: Iterable[CheckedRow]) -> list[ScalingRow]:
    """Return the report's predictions: up to twice the devices that were measured, by the link measured here.

    Their intervals are widened by the largest factor between prediction and measurement where the model was
    checked. None where one replica was measured, since no link was.
    """
    if predictor.here is None:
        return []
    factor = max((max(1 + each.error, 1 / (1 + each.error)) for each in checked), default=1.0)
    rows = predictor.rows(HERE, [1, predictor.per_node, 2 * predictor.per_node])
    return [_widened(row, factor) if row.devices > 1 else row for row in rows]


def _widened(row: ScalingRow, factor: float) -> ScalingRow:
    def band(interval: Interval) -> Interval:
        return Interval(interval.value, interval.low / factor, interval.high * factor)

    return replace(
        row,
        seconds_per_step=band(row.seconds_per_step),
        speedup=band(row.speedup),
        efficiency=band(row.efficiency),
    )


def checked_rows(predictor: Predictor, bench: StrategyResults) -> list[CheckedRow]:
    """Set what was measured on one replica and on all of this machine's beside the prediction."""
    times = step_seconds(bench.blocks)
    link = HERE if predictor.here else next(iter(LINKS))  # of one replica, which sends nothing
    rows = []
    for each in bench.variants:
        if each.variant in (BASE, PREDICTED) and each.variant in times:
            measured = median_of_rounds(times[each.variant], predictor.confidence)
            predicted = predictor.rows(link, [each.replicas], per_node=each.replicas)[0].seconds_per_step
            error = predicted.value / measured.value - 1
            rows.append(CheckedRow(each.variant, each.replicas, predicted, measured, error))
    return rows


def _fit_replica(steps: Sequence[CostStep], drawn: Draws) -> Replica:
    """Fit the time of one replica by its episodes, and how much its peers slow it."""

    def medians(busy: int) -> tuple[list[int], Floats]:
        own = (each for each in steps if each.busy == busy)
        return _medians(((each.episodes, each.round, each.seconds / each.steps) for each in own), drawn)

    sizes, alone = medians(1)
    _, crowded = medians(max(each.busy for each in steps))
    return Replica(*fit_line(sizes, alone), np.maximum(1.0, (crowded / alone).mean(axis=-1)))


def _medians(blocks: Iterable[tuple[int, int, float]], drawn: Draws) -> tuple[list[int], Floats]:
    """Sizes, and the median time of each [draws, sizes]; a block is its size, its round and its seconds."""
    times = by_round(sorted(blocks))
    table = np.array([[*each.values()] for each in times.values()]).T
    return [*times], np.asarray(np.median(table[drawn], axis=-2))
