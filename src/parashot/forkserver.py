"""The server that ranks and loader workers are forked from, so that what they import is imported once."""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing.context import ForkServerContext


def fork_server(*modules: str) -> ForkServerContext:
    """Return the way to start processes from this process's server.

    The server starts with the first process, and imports what this process has imported of parashot by then,
    and `modules`.
    """
    context = multiprocessing.get_context("forkserver")
    ours = [name for name in sys.modules if name.partition(".")[0] == "parashot"]
    context.set_forkserver_preload([*ours, *modules])
    return context
