"""The claims of the study and the topics of advice, in the order of the report.

A new claim, or piece of advice, is a function in the `claims.py` of its question and a line here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from parashot.questions.accuracy import claims as accuracy
from parashot.questions.advice import Advice
from parashot.questions.batchsz import claims as batchsz
from parashot.questions.claim import StudyClaim, UntestableError
from parashot.questions.gain import claims as gain
from parashot.questions.loader import claims as loader
from parashot.questions.step import claims as step
from parashot.questions.strategies import claims as strategies

if TYPE_CHECKING:
    from parashot.questions.study import Study

CLAIMS: tuple[StudyClaim, ...] = (
    loader.optimum,
    loader.few,
    loader.many,
    loader.memory,
    strategies.ddp_beats_dp,
    accuracy.parity,
    batchsz.small,
    batchsz.large,
    strategies.dp_imbalance,
    strategies.ddp_memory,
    loader.ddp_workers_zero,
    step.concat_serial,
    step.copy_overlap,
    strategies.threads_gil,
    strategies.ddp_sync,
    strategies.overlap,
    batchsz.comm_share,
    strategies.layer_split_sync,
    strategies.channel_split_sync,
    step.accumulation_equals,
    step.checkpointing_trades,
    accuracy.warmup_large_only,
)

TOPICS: Mapping[str, Callable[[Study], Advice]] = {
    "strategy": strategies.advise_strategy,
    "loader": loader.advise_loader,
    "computing": step.advise_step,
    gain.ALL_OF_IT: gain.advise_all,
    "batch size": batchsz.advise_batchsz,
    "accuracy": accuracy.advise_accuracy,
    "accuracy in bf16": accuracy.advise_precision,
}

SPEED = ("strategy", "loader", "computing", gain.ALL_OF_IT)
"""Topics on the time of a step alone."""


def advise(study: Study) -> tuple[Advice, ...]:
    """Advise on every topic, by the measurements alone; what was not measured says what is missing."""
    found = []
    for topic, advise_on in TOPICS.items():
        try:
            found.append(advise_on(study))
        except UntestableError as reason:
            found.append(Advice(topic, "", "", "", str(reason), False))
    return tuple(found)
