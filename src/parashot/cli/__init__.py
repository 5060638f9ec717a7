"""The command `parashot`: a module per command, each heavy import within the command that needs it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import metadata

from parashot.cli import (
    advise,
    classify,
    clean,
    doctor,
    evaluate,
    init,
    measure,
    predict,
    recipe,
    summary,
    sweep,
)
from parashot.command import guarded

COMMANDS = (doctor, recipe, summary, advise, measure, init, predict, sweep, evaluate, classify, clean)
"""In the order of `--help`; each adds its parser, whose default `run` takes the parsed command line."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (this process's where None is given) and return its exit status."""
    command = parser().parse_args(arguments)
    return guarded(lambda: command.run(command))


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    whole = argparse.ArgumentParser(
        prog="parashot",
        description="Measure how to parallelise a few-shot training on this machine.",
    )
    try:
        version = metadata.version("parashot")
    except metadata.PackageNotFoundError:
        version = "(not installed)"
    whole.add_argument("--version", action="version", version=f"parashot {version}")
    commands = whole.add_subparsers(metavar="COMMAND", required=True)
    for each in COMMANDS:
        each.add_parser(commands)
    return whole
