"""Claims about how one replica computes a step; an equality settles each of them, so tests hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parashot.questions.claim import Finding, UntestableError, by_test, claim, settled

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
