"""From a data set of steps to batches on the device, by any number of worker processes."""

from __future__ import annotations

import signal
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from parashot.errors import DeviceError, one_line
from parashot.lifetime import end_with_maker, usual_start_method
from parashot.task import Batch, even_share


def step_loader(
    dataset: Dataset[Batch], steps: Sequence[int], workers: int, prefetch: int, device: torch.device
) -> Iterator[Batch]:
    """Iterate over `steps` of `dataset`, whose item s is this rank's batch of step s.

    On a GPU the batches arrive there, one ahead of computing.
    """
    on_gpu = device.type == "cuda"
    batches = host_batches(dataset, steps, workers, prefetch, pin_memory=on_gpu)
    return cuda_prefetch(batches, device) if on_gpu else batches


def host_batches(
    dataset: Dataset[Any], steps: Sequence[int], workers: int, prefetch: int, *, pin_memory: bool
) -> Iterator[Any]:
    """Iterate over `steps` of `dataset` in the host's memory; pin_memory: they are batches.

    Workers start as those of a script do, by the platform's default. prefetch: batches that each has ready.
    """
    if not workers:
        batches = (dataset[step] for step in steps)
        pinned = pin_memory and torch.cuda.is_available()  # as DataLoader's workers do
        return (batch.pin_memory() for batch in batches) if pinned else batches
    with starting_workers():
        loaded = iter(
            DataLoader(
                dataset,
                sampler=steps,
                batch_size=None,
                num_workers=workers,
                prefetch_factor=prefetch,
                multiprocessing_context=usual_start_method(),
                pin_memory=pin_memory,
                worker_init_fn=_worker_begins,
            )
        )
    return _naming_lost_workers(loaded)


@contextmanager
def starting_workers() -> Iterator[None]:
    """Within it, workers start without warnings, of more of them than cores and of forking with threads.

    Ctrl-C, which reaches every process, is blocked meanwhile, and so for good in workers that are forked:
    they end with the process that they read for.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="This DataLoader will create")
            warnings.filterwarnings("ignore", message=r"This process .* is multi-threaded, use of fork")
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def workers_of_rank(workers: int, local_rank: int, local_world_size: int) -> int:
    """A rank's share of a machine's loader workers."""
    return len(range(workers)[even_share(workers, local_rank, local_world_size)])


def cuda_prefetch(batches: Iterator[Batch], device: torch.device) -> Iterator[Batch]:
    """Yield `batches` on the CUDA `device`, in order; the next one is copied meanwhile, on its own stream.

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
    current = torch.cuda.current_stream(batch.tensors[0].device)
    current.wait_event(copied)
    for tensor in batch.tensors:
        tensor.record_stream(current)  # its memory is not reused before this stream is done with it
    return batch


def _naming_lost_workers(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the same. Raises `DeviceError` where a worker was killed."""
    try:
        yield from batches
    except (RuntimeError, ConnectionError, EOFError) as error:
        if isinstance(error, RuntimeError) and "DataLoader worker (pid" not in str(error):
            raise
        raise DeviceError(
            f"a loader worker was killed ({_said_of_lost_worker(error)}); run again, which goes on where a "
            "training was saved, and with fewer workers where memory or shared memory (a container's "
            "--shm-size) is short"
        ) from error


def _said_of_lost_worker(error: Exception) -> str:
    """The error in one line, or what PyTorch raises when the system tells it that a worker has ended.

    That comes at any moment: here, at the latest, if the connection to the worker was the first to fail.
    """
    try:
        time.sleep(0.2)
        return one_line(error)
    except RuntimeError as told:
        return one_line(told)


def _worker_begins(worker: int) -> None:
    """Let a worker end with the process it reads for, however that ends."""
    end_with_maker()
