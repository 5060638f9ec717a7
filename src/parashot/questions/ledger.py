"""The study's claims, each with the verdict that the measurements give. A new one is a function and an entry.

Verdicts come from statistics alone: "faster" asks for an interval that excludes 1, "the same accuracy" for an
equivalence test. What the data do not decide is `undecided`; what could not be measured `cannot be tested
here`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from parashot.questions.accuracy import claims as claims_warmup
from parashot.questions.batchsz import claims as claims_batchsz
from parashot.questions.evidence import Evidence, Finding, UntestableError, Verdict
from parashot.questions.loader import claims as claims_loader
from parashot.questions.step import claims as claims_step
from parashot.questions.strategies import claims as claims_strategies
from parashot.questions.strategies import claims_splits
from parashot.questions.study2020 import CLAIMS


@dataclass(frozen=True)
class Claim:
    """A claim of the study, its figure there, what was measured here, and what follows."""

    id: str
    claim: str
    study_figure: str
    measured: str
    verdict: Verdict
    reason: str


JUDGES: Mapping[str, Callable[[Evidence], Finding]] = {
    "loader-optimum": claims_loader.loader_optimum,
    "loader-few": claims_loader.loader_few,
    "loader-many": claims_loader.loader_many,
    "loader-memory": claims_loader.loader_memory,
    "ddp-beats-dp": claims_strategies.ddp_beats_dp,
    "accuracy-parity": claims_strategies.accuracy_parity,
    "small-batch": claims_batchsz.small_batch,
    "large-batch": claims_batchsz.large_batch,
    "dp-imbalance": claims_strategies.dp_imbalance,
    "ddp-memory": claims_strategies.ddp_memory,
    "ddp-workers-zero": claims_strategies.ddp_workers_zero,
    "concat-serial": claims_strategies.concat_serial,
    "copy-overlap": claims_strategies.copy_overlap,
    "threads-gil": claims_strategies.threads_gil,
    "ddp-sync": claims_strategies.ddp_sync,
    "overlap": claims_splits.overlap,
    "comm-share": claims_batchsz.comm_share,
    "layer-split-sync": claims_splits.layer_split_sync,
    "channel-split-sync": claims_splits.channel_split_sync,
    "accumulation-equals": claims_step.accumulation_equals,
    "checkpointing-trades": claims_step.checkpointing_trades,
    "warmup-large-only": claims_warmup.warmup_large_only,
}


def judge_claims(evidence: Evidence) -> list[Claim]:
    """Judge every claim, in the study's order."""
    return [
        Claim(study.id, study.claim, study.figure, finding.measured, finding.verdict, finding.reason)
        for study in CLAIMS
        for finding in [_judge(study.id, evidence)]
    ]


def _judge(claim: str, evidence: Evidence) -> Finding:
    try:
        return JUDGES[claim](evidence)
    except UntestableError as reason:
        return Finding("not measured", "cannot be tested here", str(reason))
