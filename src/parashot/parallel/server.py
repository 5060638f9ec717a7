"""What starts ranks: torchrun, or a server that they are forked from. Imports no torch."""

from __future__ import annotations

import os
from multiprocessing import forkserver

from parashot.lifetime import fork_server, is_folder_short

IMPORTED_BY_OPTIMIZERS = "torch._dynamo"
"""Every optimizer of torch imports it when it is made, which takes about as long as torch itself, and 90 MB.
It is imported first, so that it counts as neither time nor memory of a training."""


def joined_by_torchrun() -> bool:
    """Return whether torchrun started this process, so that its peers are there already."""
    return all(
        name in os.environ for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
    )


def start_early(*modules: str) -> None:
    """Start this process's server: it imports `modules` while this process imports them, too.

    Not where torchrun has started all ranks, or where no server can start: what needs one says why.
    """
    if is_folder_short() and not joined_by_torchrun():
        fork_server(*modules)
        forkserver.ensure_running()
