"""What becomes of a rank whose peer is gone or hangs: it says which one, and ends."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Thread

import torch
from torch import distributed as dist

from parashot.errors import PeerError, one_line
from parashot.parallel.context import Context

_LOST = re.compile(r"gloo|nccl|timed? ?out|connection|peer|socket", re.IGNORECASE)
"""In what torch says where a message did not arrive."""

_ROLL_CALL = timedelta(seconds=5)
"""How long the first rank waits for the others to answer; these wait twice as long for what it says."""

_TAG = 7
"""Of these messages: one that was cut off before is not taken for one of them."""


@contextmanager
def naming_lost_peers(context: Context, control: dist.ProcessGroup | None) -> Iterator[None]:
    """Turn the failure of a message into `PeerError`, in one line that names the ranks that do not answer.

    `control` is a group of all ranks over gloo.
    """
    try:
        yield
    except RuntimeError as error:
        if control is None or not _LOST.search(str(error)):
            raise
        silent = _silent_ranks(context, control)
        who = f"rank {' and '.join(map(str, silent))}" if silent else "a peer"
        limit = context.placement.meeting.timeout_seconds
        raise PeerError(
            f"rank {context.rank} lost {who}: it ended, or did not answer within parallel.timeout_seconds "
            f"{limit:g} ({one_line(error)})"
        ) from error


def _silent_ranks(context: Context, control: dist.ProcessGroup) -> list[int]:
    """Who does not come to a roll call, which the first rank holds; without it, that one is silent.

    `dist.monitored_barrier` would wait for a first rank that hangs as long as the group's timeout is.
    """
    missing = torch.zeros(context.ranks)
    if not context.is_first:
        heard = _send(torch.ones(1), 0, control) and _receive(missing, 0, control, 2 * _ROLL_CALL)
        return _marked(missing) if heard else [0]
    present = _who_answers(context, control)
    for rank in set(range(1, context.ranks)) - present:
        missing[rank] = 1
    for rank in present:
        _send(missing, rank, control)
    return _marked(missing)


def _who_answers(context: Context, control: dist.ProcessGroup) -> set[int]:
    """The ranks whose answer comes in time.

    Threads wait, without an end of their own: gloo takes a message that is late for the end of all.
    """
    present: set[int] = set()

    def listen(rank: int) -> None:
        if _receive(torch.empty(1), rank, control):
            present.add(rank)

    threads = [Thread(target=listen, args=(rank,), daemon=True) for rank in range(1, context.ranks)]
    for each in threads:
        each.start()
    end = time.monotonic() + _ROLL_CALL.total_seconds()
    for each in threads:
        each.join(max(0.0, end - time.monotonic()))
    return set(present)


def _send(message: torch.Tensor, rank: int, control: dist.ProcessGroup) -> bool:
    """Whether the message is on its way to `rank`."""
    try:
        work = dist.isend(message, rank, control, _TAG)
        return work is not None and work.wait(_ROLL_CALL)
    except RuntimeError:
        return False


def _receive(
    message: torch.Tensor, rank: int, control: dist.ProcessGroup, patience: timedelta | None = None
) -> bool:
    """Whether the message of `rank` comes, within `patience` if there is one."""
    try:
        work = dist.irecv(message, rank, control, _TAG)
        return work is not None and (work.wait() if patience is None else work.wait(patience))
    except RuntimeError:
        return False


def _marked(ranks: torch.Tensor) -> list[int]:
    marked: list[int] = ranks.nonzero()[:, 0].tolist()
    return marked
