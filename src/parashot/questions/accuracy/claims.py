"""The claim of the study's companions about warming up the learning rate."""

from __future__ import annotations

from typing import Literal

from parashot.questions.accuracy.records import WarmupRun
from parashot.questions.evidence import Evidence, Finding, UntestableError
from parashot.questions.statistics import Interval, paired, repeated_interval
from parashot.questions.text import percent

Need = Literal["needed", "not needed", "open"]


def warmup_large_only(evidence: Evidence) -> Finding:
    """Holds if warm-up brings accuracy at the largest size, and no more than the margin at the smallest."""
    runs = evidence.results.warmup
    if runs is None:
        raise UntestableError(evidence.why_missing("warmup"))
    if not runs:
        raise UntestableError(
            "warmup_study.enabled is false; `dvc exp run -S warmup_study.enabled=true` trains what it takes"
        )
    sizes = sorted({run.batchsz for run in runs})
    small, large = sizes[0], sizes[-1]
    margin, confidence = evidence.params.claims.accuracy_margin, evidence.resampling.confidence
    gains = {size: _gain(runs, size, confidence) for size in (small, large)}
    measured = (
        f"accuracy that warm-up brings, over {len({run.seed for run in runs})} seeds: "
        f"{_said(small, gains[small])}; {_said(large, gains[large])}"
    )
    needs = {size: _need(gain, margin) for size, gain in gains.items()}
    if needs[large] == "not needed":
        return Finding(measured, "does not hold", f"it brings less than {percent(margin)} at batchsz {large}")
    if needs[small] == "needed":
        return Finding(measured, "does not hold", f"it helps at batchsz {small}, too")
    if needs == {small: "not needed", large: "needed"}:
        reason = f"it helps at batchsz {large}, and brings less than {percent(margin)} at {small}"
        return Finding(measured, "holds", reason)
    undecided = " and ".join(str(size) for size, need in needs.items() if need == "open")
    return Finding(
        measured,
        "undecided",
        f"at batchsz {undecided} the interval includes both 0 and {percent(margin)}; more seeds decide it",
    )


def _gain(runs: tuple[WarmupRun, ...], size: int, confidence: float) -> Interval:
    """Accuracy with warm-up minus without, paired by seed."""
    with_it = {run.seed: run.val_accuracy for run in runs if run.batchsz == size and run.warmup_steps}
    without = {run.seed: run.val_accuracy for run in runs if run.batchsz == size and not run.warmup_steps}
    first, second = paired(with_it, without)
    if len(first) < 3:
        raise UntestableError(f"batchsz {size} was trained with fewer than 3 seeds")
    return repeated_interval(first - second, confidence)


def _need(gain: Interval, margin: float) -> Need:
    if gain.high < margin:
        return "not needed"
    return "needed" if gain.low > 0 else "open"


def _said(size: int, gain: Interval) -> str:
    low, value, high = (f"{100 * each:+.1f}" for each in (gain.low, gain.value, gain.high))
    return f"batchsz {size}: {value} points ({low} to {high})"
