"""Claims of the study's companions about what is exchanged, and about splitting the network itself."""

from __future__ import annotations

from parashot.questions.evidence import Evidence, Finding, UntestableError, judged
from parashot.questions.statistics import paired, ratio_interval
from parashot.questions.strategies.claims import step, timed
from parashot.questions.strategies.costs import hidden_share
from parashot.questions.strategies.rows import step_seconds
from parashot.questions.text import counted, percent, times

DATA_PARALLEL = ("ddp", "allreduce", "dp")
"""What splits are held against: the first of these that was timed."""

WORTH_HIDING = 0.1
"""Of the time of messages: where less is hidden than this, communication is not hidden."""


def layer_split_sync(evidence: Evidence) -> Finding:
    """Holds if a step with the layers on two devices takes longer than a data-parallel one."""
    return _against_data_parallel(evidence, "layer_split")


def channel_split_sync(evidence: Evidence) -> Finding:
    """Holds if a step with the channels over the devices takes longer than a data-parallel one."""
    return _against_data_parallel(evidence, "channel_split")


def overlap(evidence: Evidence) -> Finding:
    """Holds if DDP's processes compute in a tenth or more of the time that their messages are under way."""
    ddp = timed(evidence, "ddp")
    assert evidence.results.strategies is not None
    shares = evidence.results.strategies.shares
    hidden = hidden_share("ddp", shares, evidence.resampling)
    if hidden is None or ddp.communication_exposed is None or ddp.communication_hidden is None:
        raise UntestableError("the profiler saw no messages in DDP's steps")
    calls = next(
        (each.all_reduces for each in evidence.results.strategies.anatomy if each.variant == "ddp"), 0
    )
    measured = (
        f"{percent(hidden.value)} of the time of {counted(calls, 'all-reduce')} per step hidden "
        f"({percent(hidden.low)} to {percent(hidden.high)}); messages take "
        f"{percent(ddp.communication_exposed + ddp.communication_hidden)} of a step"
    )
    side = hidden.side_of(WORTH_HIDING)
    level = f"{100 * evidence.resampling.confidence:g}%"
    if side == "around":
        return Finding(measured, "undecided", f"its {level} interval includes {percent(WORTH_HIDING)}")
    why = f"its {level} interval lies {side} {percent(WORTH_HIDING)}"
    if side == "below" and calls < 2:
        why += "; the gradients fit in one message, which cannot leave before the last of them is there"
    return Finding(measured, "holds" if side == "above" else "does not hold", why)


def _against_data_parallel(evidence: Evidence, name: str) -> Finding:
    split = timed(evidence, name)
    assert evidence.results.strategies is not None
    blocks = step_seconds(evidence.results.strategies.blocks)
    base = next((each for each in DATA_PARALLEL if each in blocks), None)
    if base is None:
        raise UntestableError("no data-parallel strategy was timed; set parallel.ddp.enabled to true")
    ratio = ratio_interval(*paired(blocks[name], blocks[base]), evidence.resampling)
    measured = f"{step(split)} per step against {step(timed(evidence, base))} ({base}): {times(ratio)}"
    what = f"its time over that of {base}"
    finding = judged(measured, ratio, "above", what, evidence.resampling.confidence)
    return Finding(finding.measured, finding.verdict, f"{finding.reason}{_why(split.why_slow)}")


def _why(reason: str) -> str:
    return f"; {reason}" if reason else ""
