"""Claims about how one replica computes a step; an equality settles each of them, so tests hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parashot.questions.claim import Finding, UntestableError, claim, shown_by_test

if TYPE_CHECKING:
    from parashot.questions.study import Study


@claim("concat-serial", "Joining support and query cannot be parallelised.")
def concat_serial(_: Study) -> Finding:
    """Does not hold: the joined scores come out of parts that are computed once per image."""
    what = "the same scores come without joining, from parts that split freely"
    return shown_by_test("tests/model/test_pairing.py", "does not hold", what)


@claim("copy-overlap", "Copies to the device can be hidden behind computing.")
def copy_overlap(study: Study) -> Finding:
    """Holds, on a GPU: the next batch is copied on a stream of its own while this one is computed."""
    if study.hardware is None or not study.hardware.gpus:
        raise UntestableError("images are copied to a device only where that is a GPU, and there is none")
    what = "the next batch is copied while this one is computed"
    return shown_by_test("tests/data/test_cuda_prefetch.py", "holds", what)


@claim("accumulation-equals", "k accumulated batches equal one that is k times as large.")
def accumulation_equals(_: Study) -> Finding:
    """Does not hold as the network trains, since batch norm takes its statistics from each batch."""
    what = "batch norm takes its statistics from each part; without that the sums are the same"
    return shown_by_test("tests/train/test_train_accumulation.py", "does not hold", what)


@claim("checkpointing-trades", "Gradient checkpointing trades time for memory.")
def checkpointing_trades(_: Study) -> Finding:
    """Holds: fewer bytes are kept for backward, and blocks are computed a second time."""
    what = "fewer bytes are kept for backward, and blocks are computed twice"
    return shown_by_test("tests/model/test_recompute.py", "holds", what)
