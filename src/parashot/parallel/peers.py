"""What becomes of a rank whose peer is gone or hangs: it says which one, and ends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from torch import distributed as dist

from parashot.errors import PeerError, one_line
from parashot.parallel.context import Context

_LOST = re.compile(r"gloo|nccl|timed? ?out|connection|peer|socket", re.IGNORECASE)
"""In what torch says where a message did not arrive."""

_ROLL_CALL = timedelta(seconds=5)


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
    """Who does not come to a roll call; only the first rank learns of more than that the first is missing."""
    try:
        dist.monitored_barrier(control, _ROLL_CALL, wait_all_ranks=True)
    except RuntimeError as error:
        said = str(error)
        named = [
            int(each)
            for group in re.findall(r"[Rr]anks?:? ([\d, ]+)", said)
            for each in group.split(",")
            if each.strip()
        ]
        return sorted(set(named) - {context.rank})
    return []
