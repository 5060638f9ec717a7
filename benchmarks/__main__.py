"""`python -m benchmarks NAME`: measure, print tables, and write them as JSON where asked to."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from benchmarks.outcome import Outcome, save, show
from parashot.command import guarded

BENCHMARKS = {
    "check": "the bounds the project holds itself to; exit status 1 where one is not shown to hold",
    "own": "what `parashot measure` says of an example, against trainings in plain PyTorch",
    "search": "the search of `parashot measure` against all ways; exit status 1 where it is off by over 5%",
    "roofline": "training steps against what the machine's arithmetic and memory allow",
    "norm": "ghost batch norm against PyTorch's: time of a step, accuracy after training",
    "coverage": "how often intervals cover and choices err, on simulated times whose truth is known",
    "leaks": "10,000 steps and 200 loader restarts: what grows? exit status 1 where anything does",
    "predict": "the model of cost against DDP on 1 and 2 replicas; exit status 1 where it is off by over 15%",
    "pipeline": "fixed costs: modules of a stage, dvc status, parashot --help",
}
"""Each is a module with `run(quick: bool) -> Outcome`; what readers of the page ask first comes first."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one benchmark and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="name", metavar="NAME", required=True)
    for name, about in BENCHMARKS.items():
        command = commands.add_parser(name, help=about.replace("%", "%%"), description=about)
        command.add_argument("--quick", action="store_true", help="small shapes, to see that it runs")
        command.add_argument("--to", metavar="FILE", type=Path, help="write the result as JSON too")
    chosen = parser.parse_args(arguments)
    short = False

    def measure() -> None:
        nonlocal short
        begin = time.perf_counter()
        outcome: Outcome = import_module(f"benchmarks.{chosen.name}").run(chosen.quick)
        outcome = replace(outcome, seconds=time.perf_counter() - begin)
        print(show(outcome), end="")
        if chosen.to:
            save(outcome, chosen.to)
        short = bool(outcome.settings.get("short"))

    return guarded(measure) or int(short)


if __name__ == "__main__":
    sys.exit(main())
