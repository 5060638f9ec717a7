"""Ranks that stay: starting processes takes longer than most tests do.

Ranks are forked from one process that has imported what they need. A rank keeps what a test leaves
in it, so tests of starting and ending use `launch` instead.
"""

from __future__ import annotations

import os
import pickle
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from parashot.lifetime import fork_server
from parashot.parallel.context import Placement, by_file, process_context
from parashot.parallel.server import IMPORTED_BY_OPTIMIZERS

END = "end"
"""Sent instead of the next call."""


class StandingRanks:
    """Groups of ranks by their size, each started at its first call."""

    def __init__(self) -> None:
        self._groups: dict[int, _Group] = {}

    def __call__(self, count: int, function: Callable[..., Any], *args: Any) -> Any:
        """Call `function(context, *args)` in `count` ranks and return the result of rank 0.

        The function stands at the top of a module. A group of which a rank fails is killed.
        """
        group = self._groups.pop(count, None) or _Group(count)
        result = group.call(function, *args)
        self._groups[count] = group
        return result

    def close(self) -> None:
        """Tell all processes to end, and wait for none."""
        for group in self._groups.values():
            group.close()


class _Group:
    def __init__(self, count: int) -> None:
        self._folder = tempfile.TemporaryDirectory()
        server = fork_server(IMPORTED_BY_OPTIMIZERS, "parashot.train.run")
        pipes = [server.Pipe() for _ in range(count)]
        self._connections = [mine for mine, _ in pipes]
        self._ranks = []
        for rank, (_, theirs) in enumerate(pipes):
            self._ranks.append(server.Process(target=serve, args=(rank, count, self._folder.name, theirs)))
            self._ranks[-1].start()
            theirs.close()

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        for connection in self._connections:
            # plain pickling: torch's own, of tensors in shared memory, ties the lives of processes together
            connection.send_bytes(pickle.dumps((function, args)))
        first, waiting = None, list(self._connections)
        while waiting:
            ready: Any
            for ready in wait(waiting):
                waiting.remove(ready)
                try:
                    result, failure = pickle.loads(ready.recv_bytes())
                except EOFError:
                    failure = "a rank has ended"
                if failure:
                    for rank in self._ranks:
                        rank.kill()
                        rank.join()
                    raise AssertionError(failure)
                first = result if ready is self._connections[0] else first
        return first

    def close(self) -> None:
        for connection in self._connections:
            connection.send_bytes(pickle.dumps(END))


def serve(rank: int, count: int, folder: str, connection: Connection[Any, Any]) -> None:
    """Run in every rank: join the others by a file in `folder`, and answer calls until END."""
    os.environ |= dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank))
    os.environ |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(count))
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
    placement = by_file(Placement("cpu", count, 1, 2), Path(folder, "ranks"))
    with process_context(placement) as context, connection:
        while (call := pickle.loads(connection.recv_bytes())) != END:
            function, args = call
            try:
                result = function(context, *args)
                answer = (result if context.is_main else None), ""
            except Exception:  # raised again where the test runs
                answer = None, traceback.format_exc()
            connection.send_bytes(pickle.dumps(answer))
