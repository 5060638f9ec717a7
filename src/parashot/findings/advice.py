"""What to use on this machine, read out of the measurements alone: what it buys, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from parashot.findings.accuracy import AccuracyComparison, compare_accuracy
from parashot.findings.batchsz import BatchszRow, episode_seconds
from parashot.findings.evidence import Evidence, UntestableError
from parashot.findings.loader import batch_seconds
from parashot.findings.statistics import Interval, tied_with_best
from parashot.findings.strategies import BASE, StrategyRow, step_seconds
from parashot.findings.text import counted, listed, number, points, ratio, times

ALONE = {"serial": "one replica", "serial-all-cores": "one replica on all cores"}
"""What the variants of a single replica are called in a sentence."""


@dataclass(frozen=True)
class Advice:
    """One choice. Where nothing could be measured `choice` is empty and `sure` says what is missing."""

    topic: str
    choice: str
    setting: str  # for `dvc exp run -S`; empty where no parameter makes the choice
    phrase: str  # the choice as a part of a sentence
    buys: str
    sure: str
    decided: bool  # whether the intervals separate it from every other choice


def advise(evidence: Evidence) -> list[Advice]:
    """Advise on strategy, loader workers and batch size."""
    topics = {"strategy": _strategy, "loader workers": _loader, "batch size": _batchsz}
    found = []
    for topic, choose in topics.items():
        try:
            found.append(choose(evidence))
        except UntestableError as reason:
            found.append(Advice(topic, "", "", "", "", str(reason), False))
    return found


def answer(advice: Iterable[Advice]) -> str:
    """The study's answer in one sentence."""
    phrases = [each.phrase for each in advice if each.choice]
    if not phrases:
        return "Nothing was measured yet: run `dvc repro`."
    return f"On this machine, {'; '.join(phrases)}."


def _strategy(evidence: Evidence) -> Advice:
    """The fastest variant whose accuracy is not shown to be worse than serial's."""
    if evidence.results.strategies is None:
        raise UntestableError(evidence.why_missing("strategies"))
    steps = step_seconds(evidence.results.strategies.blocks)
    rows = {name: row for name, row in evidence.strategies.items() if row.seconds_per_step}
    sound = {name: steps[name] for name, row in rows.items() if not _worse(evidence, row)}
    if not sound:
        raise UntestableError("no strategy was timed; run `dvc repro`")
    best, ratios = tied_with_best(sound, evidence.resampling)
    row = rows[best]
    faster = row.speedup if best != BASE else None
    on = f"{best} on {row.replicas} replicas" if row.replicas > 1 else ALONE.get(best, best)
    gain = f", {ratio(faster.value)}× as fast as {BASE}" if faster else ": nothing was faster"
    return Advice(
        topic="strategy",
        choice=best,
        setting="",
        phrase=f"train with {on}{gain}",
        buys=f"{times(faster)} as fast as one replica" if faster else "nothing was faster",
        sure=_sure(ratios, "strategy") + _accuracy_words(evidence, row),
        decided=_decided(ratios),
    )


def _loader(evidence: Evidence) -> Advice:
    """The fewest workers that cannot be told from the fastest setting of the training's backend."""
    backend = evidence.params.loader.backend
    if evidence.results.loader is None:
        raise UntestableError(evidence.why_missing("loader"))
    seconds = batch_seconds(evidence.results.loader.blocks, backend)
    if not seconds:
        raise UntestableError(f"the backend {backend} was not measured; add it to loader.bench.backends")
    best, ratios = tied_with_best(seconds, evidence.resampling)
    tied = [best, *(workers for workers, ratio in ratios.items() if ratio.side_of(1) == "around")]
    workers = min(tied)
    row = next(row for row in evidence.loader if (row.backend, row.workers) == (backend, workers))
    gain = "no workers are as fast as any number of them"
    if workers and row.speedup:
        gain = f"{times(row.speedup)} the episodes per second of none"
    others = [str(each) for each in sorted(tied) if each != workers]
    sure = f"faster than every other number of workers with {backend}"
    if len(seconds) == 1:
        sure = f"the only number of workers that was measured with {backend}"
    if others:
        sure = f"as fast as {listed(others)} as far as these blocks tell; the fewest take the least memory"
    return Advice(
        topic="loader workers",
        choice=str(workers),
        setting=f"loader.workers={workers}",
        phrase=f"read with {counted(workers, 'worker') if workers else 'no workers'} ({backend})",
        buys=gain,
        sure=sure + _supply(evidence, row.episodes_per_second),
        decided=not others,
    )


def _batchsz(evidence: Evidence) -> Advice:
    """The size with the least time per episode among those not shown to be less accurate on the same budget.

    What counts is more than the margin. Where none learned that much above chance, accuracy says nothing. A
    size that was stopped has seen fewer episodes, so its accuracy counts against the others, not for it.
    """
    if evidence.results.batchsz is None:
        raise UntestableError(evidence.why_missing("batchsz"))
    baseline = evidence.params.batchsz_study.baseline
    base = evidence.batchsz.get(baseline)
    if base is None or base.status == "skipped":
        raise UntestableError(
            f"batchsz was skipped: {base.reason}" if base else "the baseline was not measured"
        )
    timed = {row.batchsz: row for row in evidence.batchsz.values() if row.seconds_per_episode}
    if not timed:
        raise UntestableError("no batch size has timed blocks; run `dvc repro`")
    leader = max(timed.values(), key=lambda row: row.val_accuracy or 0)
    margin = evidence.params.claims.accuracy_margin
    learned = _above(leader, 1 / evidence.params.episode.n_way + margin)
    sound = [row.batchsz for row in timed.values() if not (learned and _less_accurate(row, leader, margin))]
    blocks = evidence.results.batchsz.blocks
    best, ratios = tied_with_best(
        {size: episode_seconds(blocks, size) for size in sound}, evidence.resampling
    )
    row = timed[best]
    speed = row.speedup if best != baseline else None
    pace = f"{times(speed)} as fast as {baseline}" if speed else "nothing was faster"
    return Advice(
        topic="batch size",
        choice=str(best),
        setting=f"train.batchsz={best}",
        phrase=f"take {best} episodes per step{_why_this_size(row, timed, sound)}",
        buys=pace,
        sure=_sure(ratios, "size of that accuracy" if len(sound) < len(timed) else "size")
        + (_batchsz_accuracy(row, timed, sound) if learned else "; none learned more than chance here"),
        decided=_decided(ratios),
    )


def _why_this_size(row: BatchszRow, timed: Mapping[int, BatchszRow], sound: Iterable[int]) -> str:
    """What the size buys: speed, or accuracy where faster ones fell behind."""
    behind = [each for size, each in timed.items() if size not in sound]
    if behind and row.val_accuracy is not None:
        best = max(each.val_accuracy or 0 for each in behind)
        return f": {100 * row.val_accuracy:.0f}% accurate where other sizes reach {100 * best:.0f}%"
    return f", {ratio(row.speedup.value)}× as fast as the baseline" if row.speedup else ""


def _sure(ratios: Mapping[Any, Interval], noun: str) -> str:
    """How far the fastest is from the others."""
    if not ratios:
        return f"the only {noun} that was measured"
    tied = [name for name, ratio in ratios.items() if ratio.side_of(1) == "around"]
    if tied:
        return f"the fastest median, but not to be told from {listed(tied)}"
    name, ratio = min(ratios.items(), key=lambda item: item[1].value)
    return f"faster than every other {noun}: the next, {name}, takes {times(ratio)} its time"


def _decided(ratios: Mapping[Any, Interval]) -> bool:
    return all(ratio.side_of(1) != "around" for ratio in ratios.values())


def _worse(evidence: Evidence, row: StrategyRow) -> bool:
    """Whether its accuracy is shown to lie below serial's by more than the margin."""
    outcome = _against_serial(evidence, row)
    return outcome is not None and outcome.verdict == "different" and outcome.difference.value < 0


def _against_serial(evidence: Evidence, row: StrategyRow) -> AccuracyComparison | None:
    own, serial = evidence.results.training.get(row.strategy), evidence.results.training.get(BASE)
    if own is None or serial is None or row.strategy == BASE:
        return None
    claims = evidence.params.claims
    return compare_accuracy(own, serial, claims.accuracy_margin, claims.confidence)


def _accuracy_words(evidence: Evidence, row: StrategyRow) -> str:
    """How its accuracy stands to serial's."""
    outcome = _against_serial(evidence, row)
    if outcome is None:
        return ""
    margin = f"{100 * outcome.margin:g} points"
    words = {
        "equivalent": f"equivalent to serial's within {margin}",
        "different": f"more than {margin} from serial's",
        "undecided": f"neither shown to be within {margin} of serial's nor outside",
    }
    return f"; its accuracy is {words[outcome.verdict]}: {points(outcome.difference)}"


def _supply(evidence: Evidence, supply: Interval) -> str:
    """How what the loader delivers stands to what the fastest strategy consumes."""
    rates = [row.episodes_per_second.value for row in evidence.strategies.values() if row.episodes_per_second]
    if not rates:
        return ""
    ratio = supply.value / max(rates)
    verb = "about" if ratio > 1 else "only"
    return f"; it delivers {verb} {number(ratio)} times what the fastest strategy consumes"


def _less_accurate(row: BatchszRow, leader: BatchszRow, margin: float) -> bool:
    """Whether it is shown to lie below the leader by more than the margin.

    Unpaired: the episodes of these runs are not kept.
    """
    difference = _accuracy_difference(row, leader)
    return difference is not None and difference.high < -margin


def _above(row: BatchszRow, accuracy: float) -> bool:
    """Whether its accuracy is shown to lie above that."""
    return (row.val_accuracy or 0) - (row.val_accuracy_ci95 or 0) > accuracy


def _accuracy_difference(row: BatchszRow, other: BatchszRow) -> Interval | None:
    if row.val_accuracy is None or other.val_accuracy is None or row.batchsz == other.batchsz:
        return None
    half = math.hypot(row.val_accuracy_ci95 or 0, other.val_accuracy_ci95 or 0)
    difference = row.val_accuracy - other.val_accuracy
    return Interval(difference, difference - half, difference + half)


def _batchsz_accuracy(row: BatchszRow, timed: Mapping[int, BatchszRow], sound: Iterable[int]) -> str:
    """How its accuracy stands to that of the sizes that fell behind; of a stopped one, after how much."""
    behind = [
        f"{points(difference)} against batchsz {size}"
        for size, each in timed.items()
        if size not in sound and (difference := _accuracy_difference(row, each))
    ]
    stopped = f", though stopped after {row.episodes} of {row.episodes_budget} episodes"
    return f"; accuracy {', '.join(behind)}{stopped if row.status == 'stopped' else ''}" if behind else ""
