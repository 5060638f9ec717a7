"""Batches that are copied to a GPU while the one before is computed."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from parashot.data.batches import Batch


def one_ahead(batches: Iterator[Batch], device: torch.device) -> Iterator[Batch]:
    """Yield `batches` on the CUDA `device`, in order; the next one travels on a stream of its own meanwhile.

    The copies overlap with computing where the batches lie in pinned memory.
    """
    stream = torch.cuda.Stream(device)
    waiting: tuple[Batch, torch.cuda.Event] | None = None
    for batch in batches:
        with torch.cuda.stream(stream):
            sent = batch.to(device), stream.record_event()
        if waiting is not None:
            yield _arrived(*waiting)
        waiting = sent
    if waiting is not None:
        yield _arrived(*waiting)


def _arrived(batch: Batch, copied: torch.cuda.Event) -> Batch:
    """Let the computing stream wait for the batch's own copy, not for the next one's; the host goes on."""
    current = torch.cuda.current_stream(batch.support.device)
    current.wait_event(copied)
    for tensor in batch.tensors:
        tensor.record_stream(current)  # its memory is not reused before this stream is done with it
    return batch
