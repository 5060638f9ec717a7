"""Ranks that stay: starting processes takes longer than most tests do.

A rank keeps what a test leaves in it, so tests of starting and ending use `launch` instead.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Client, Listener, wait
from typing import Any

import psutil

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
        with Listener() as listener:
            self._launcher = psutil.Popen(
                [sys.executable, __file__, str(listener.address), str(count)],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            self._connections = [listener.accept() for _ in range(count)]

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        for connection in self._connections:
            # plain pickling: torch's own, of tensors in shared memory, ties the lives of processes together
            connection.send_bytes(pickle.dumps((function, args)))
        first, waiting = None, list(self._connections)
        while waiting:
            for connection in wait(waiting):
                waiting.remove(connection)
                try:
                    is_main, result, failure = pickle.loads(connection.recv_bytes())
                except EOFError:
                    failure = "a rank has ended"
                if failure:
                    self._kill()
                    raise AssertionError(failure)
                first = result if is_main else first
        return first

    def close(self) -> None:
        for connection in self._connections:
            connection.send_bytes(pickle.dumps(END))

    def _kill(self) -> None:
        for process in [*self._launcher.children(recursive=True), self._launcher]:
            process.kill()
        self._launcher.wait()


def serve(context: Any, address: str) -> None:
    """Run in every rank: answer calls until END."""
    with Client(address) as connection:
        while (call := pickle.loads(connection.recv_bytes())) != END:
            function, args = call
            result, failure, is_main = None, "", context.rank == 0
            try:
                result = function(context, *args)
            except Exception:  # raised again where the test runs
                failure = traceback.format_exc()
            connection.send_bytes(pickle.dumps((is_main, result if is_main else None, failure)))


if __name__ == "__main__":
    from parashot.parallel.context import Placement
    from parashot.parallel.launch import launch

    launch(serve, Placement("cpu", int(sys.argv[2]), 1, 2), int(sys.argv[2]), sys.argv[1])
