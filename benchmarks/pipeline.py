"""Fixed costs: processes, modules and DVC's look at the whole study; what `parashot.watch` adds to a step."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from benchmarks.checkout import run_command
from benchmarks.outcome import Outcome, Table, median_of, verdict
from benchmarks.turns import BLOCKS, in_turn, rounds, seconds_of
from parashot import watch

_PYTHON = (sys.executable, "-c")
_HELP = ("parashot", "--help")
_WATCHED_STEPS = 100_000
WATCHED_STEP_SECONDS, MOST_WATCHING = 0.005, 0.01

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "python -c pass": (*_PYTHON, "pass"),
    "import torch": (*_PYTHON, "import torch"),
    "import mlflow": (*_PYTHON, "import mlflow"),
    "import dvc.repo": (*_PYTHON, "import dvc.repo"),
    "modules of the stage hardware": (*_PYTHON, "import stages.hardware"),
    "modules of the stage train": (*_PYTHON, "import stages.train"),
    "modules of the stage summarize": (*_PYTHON, "import stages.summarize"),
    "modules of the stage publish": (*_PYTHON, "import stages.publish"),
    "parashot --help": _HELP,
    "dvc --version": ("dvc", "--version"),
    "dvc status": ("dvc", "status"),
}
"""Run in the checkout."""


def run(quick: bool) -> Outcome:
    """Time every command in turn, from outside."""
    measured = in_turn({name: _timed(*command) for name, command in COMMANDS.items()}, rounds(quick))
    rows = [(name, median_of(series)) for name, series in measured.items()]
    commands = Table("Fixed costs: a command from its start to its end", ("command", "seconds"), rows)
    added = watch_seconds()
    share = median_of([each / WATCHED_STEP_SECONDS for each in added])
    found = verdict(share, MOST_WATCHING, least=False)
    watched = Table(
        "What parashot.watch adds to a step of 5 ms",
        ("seconds", "share", "at most", "verdict"),
        [(median_of(added), share, MOST_WATCHING, found)],
    )
    settings = {
        "rounds": rounds(quick),
        "quick": quick,
        "short": [] if found == "holds" else ["parashot.watch"],
    }
    return Outcome("pipeline", [commands, watched], raw={**measured, "watch": added}, settings=settings)


def help_seconds() -> list[float]:
    """Seconds of `parashot --help`, each from start to end."""
    return in_turn({"help": _timed(*_HELP)}, BLOCKS)["help"]


def watch_seconds() -> list[float]:
    """Seconds that `parashot.watch` adds to a step."""

    def through(items: Iterable[int]) -> float:
        return seconds_of(lambda: deque(items, maxlen=0)) / _WATCHED_STEPS

    steps = range(_WATCHED_STEPS)
    loops = {
        "plain": lambda: through(steps),
        "watched": lambda: through(watch(steps, tell=lambda line: None)),
    }
    measured = in_turn(loops, BLOCKS)
    return [watched - plain for plain, watched in zip(*measured.values(), strict=True)]


def _timed(*command: str) -> Callable[[], float]:
    return lambda: seconds_of(lambda: run_command(*command))
