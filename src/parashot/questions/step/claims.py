"""Claims about how one replica computes a step, which tests settle, and advice on its precision."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from parashot.questions.advice import Advice, Choice
from parashot.questions.claim import Finding, UntestableError, by_test, claim, needed, settled
from parashot.questions.step.rows import seconds_by_way
from parashot.questions.text import times

if TYPE_CHECKING:
    from parashot.questions.study import Study
    from parashot.train.records import Choices

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
    "where it takes the same groups of episodes in both (model.norm_episodes), the gradients are equal",
)
checkpointing_trades = settled(
    "checkpointing-trades",
    "Gradient checkpointing trades time for memory.",
    "holds",
    "tests/model/test_recompute.py: fewer bytes are kept for backward, and blocks are computed twice; "
    "the peak of memory is measured by `python -m benchmarks check`",
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
    fastest: dict[str, Choices] = {}  # way of each precision
    for way in sorted(seconds, key=lambda way: median(seconds[way].values())):
        fastest.setdefault(way.precision, way)
    choice = Choice.of(study.rank({name: seconds[way] for name, way in fastest.items()}), ("fp32",))
    buys = "nothing was faster"
    if choice.decided and not choice.others and len(fastest) > 1:
        name, slowdown = choice.next_best
        buys = f"{times(slowdown)} as fast as {name}"
    sure = f"{choice.how_sure('precision')}; each in its fastest way"
    setting = f"train.precision={choice.choice}"
    return Advice("precision", choice.choice, setting, "", buys, sure, choice.decided)
