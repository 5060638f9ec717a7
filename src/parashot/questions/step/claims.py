"""Claims about how one replica computes a step, which tests settle, and advice on its precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parashot.questions.advice import Advice
from parashot.questions.claim import Finding, UntestableError, by_test, claim, needed, settled
from parashot.questions.statistics import tied_with_best
from parashot.questions.step.rows import seconds_by_way
from parashot.questions.text import times

if TYPE_CHECKING:
    from parashot.questions.study import Study

concat_serial = settled(
    "concat-serial",
    "Joining support and query cannot be parallelised.",
    "does not hold",
    "tests/model/test_pairing.py: the same scores come without joining, from parts that split freely",
)
accumulation_equals = settled(
    "accumulation-equals",
    "k accumulated batches equal one that is k times as large.",
    "does not hold",
    "tests/train/test_train_accumulation.py: batch norm takes its statistics from each part; "
    "without that the sums are the same",
)
checkpointing_trades = settled(
    "checkpointing-trades",
    "Gradient checkpointing trades time for memory.",
    "holds",
    "tests/model/test_recompute.py: fewer bytes are kept for backward, and blocks are computed twice",
)


@claim("copy-overlap", "Copies to the device can be hidden behind computing.")
def copy_overlap(study: Study) -> Finding:
    """Holds, on a GPU: the next batch is copied on a stream of its own while this one is computed."""
    if study.hardware is None or not study.hardware.gpus:
        raise UntestableError("images are copied to a device only where that is a GPU, and there is none")
    return by_test("holds", "tests/data/test_cuda_prefetch.py: one batch is copied while another is computed")


# --- advice ---------------------------------------------------------------------------------------------


def advise_precision(study: Study) -> Advice:
    """Advise the precision of the fastest way to compute a step; fp32 where bf16 is not shown faster."""
    seconds = seconds_by_way(needed(study, "tune", study.results.tune).blocks)
    if not seconds:
        raise UntestableError(f"train.precision is {study.params.train.precision}; auto has it measured")
    best, ratios = tied_with_best(seconds, study.resampling)
    choice, buys, sure, decided = best.precision, "nothing was faster", "the only one that was measured", True
    others = {way: ratio for way, ratio in ratios.items() if way.precision != best.precision}
    if others:
        other = min(others, key=lambda way: others[way].value)
        if others[other].side_of(1) == "around":
            choice, decided = "fp32", False
            sure = f"the fastest ways in {best.precision} and {other.precision} are tied; fp32 is the plainer"
        else:
            slower = times(others[other])
            buys = f"{slower} as fast as {other.precision}"
            sure = f"a step's fastest way in {other.precision} takes {slower} its time"
    return Advice("precision", choice, f"train.precision={choice}", "", buys, sure, decided)
