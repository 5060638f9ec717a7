"""Work in a process of its own, looked at again and again from outside until it ends."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.finished import environment
from benchmarks.footprint import Footprint, Tree
from benchmarks.scratch import ROOT
from benchmarks.shared_files import SharedFiles
from parashot.errors import DeviceError

_POLL_SECONDS = 0.02
_SAVING_SECONDS = 0.05
"""Until a file that has its name is closed, and its folder too."""

_PATIENCE_SECONDS = 10.0
"""For what ends a moment after its parent has."""

Process = subprocess.Popen[str]
Moments = Callable[[Process], Iterator[int]]
"""Yields units of work done, at each moment at which the process is to be looked at, until it ends."""


@dataclass(frozen=True)
class Watched:
    """What was seen after `at` units of work, and what was `left` when all was over."""

    left: Footprint
    at: list[int] = field(default_factory=list)
    looks: list[Footprint] = field(default_factory=list)

    def series(self, quantity: str) -> list[float]:
        """One field of the footprints."""
        return [getattr(each, quantity) for each in self.looks]

    def raw(self) -> dict[str, list[float]]:
        """All of them, by name."""
        return {"at": list(self.at), **{name: self.series(name) for name in asdict(self.left)}}


def watch(command: Sequence[str], moments: Moments) -> Watched:
    """Run `command` in the checkout and look at its processes at those moments.

    Raises `DeviceError` where it fails.
    """
    at, looks = [], []
    with _folder() as temporary, _folder() as cache:
        shared = SharedFiles()
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={
                **environment(),
                "TMPDIR": temporary,
                "TORCHINDUCTOR_CACHE_DIR": cache,
                "PARASHOT_MAX_RESTARTS": "0",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with process:
            tree = Tree(process.pid, Path(temporary), shared)
            try:
                for done in moments(process):
                    at.append(done)
                    looks.append(tree.look())
            except BaseException:
                process.terminate()
                raise
        if process.returncode:
            raise DeviceError(f"{' '.join(command)} ended with exit code {process.returncode}")
        return Watched(_left(tree), at, looks)


def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="leaks-")  # with a short name: paths of sockets lie in it


def when_saved(folder: Path) -> Moments:
    """Each time that a training has saved its state below `folder`."""

    def moments(process: Process) -> Iterator[int]:
        reached = 0
        while process.poll() is None:
            time.sleep(_POLL_SECONDS)
            if (step := _newest_step(folder)) > reached:
                time.sleep(_SAVING_SECONDS)
                yield step
                reached = step

    return moments


def when_told(process: Process) -> Iterator[int]:
    """Each time that the process writes a number; it waits until it was looked at."""
    assert process.stdin is not None and process.stdout is not None
    for line in process.stdout:
        yield int(line)
        process.stdin.write("\n")
        process.stdin.flush()


def _newest_step(folder: Path) -> int:
    return max((int(path.stem.split("-")[1]) for path in folder.glob("*/step-*.pt")), default=0)


def _left(tree: Tree) -> Footprint:
    """What stays, after everything had the time to go."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while any(asdict(left := tree.look()).values()) and time.monotonic() < end:
        time.sleep(_POLL_SECONDS)
    return left
