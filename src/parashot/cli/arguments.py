"""Shared by the parsers of several commands."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from parashot.errors import RecordError

if TYPE_CHECKING:
    from parashot.questions.study import Study

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

PARAMS = Path("params.yaml")
LARGEST = 2**31 - 1
"""Of whole numbers, here as in params.yaml."""


def at_least(low: int) -> Callable[[str], int]:
    """Return a type of argument: a whole number from `low` to `LARGEST`."""

    def whole_number(text: str) -> int:
        if not low <= int(text) <= LARGEST:
            raise argparse.ArgumentTypeError(f"{text} is not between {low} and {LARGEST}")
        return int(text)

    return whole_number


def add_counts(parser: argparse.ArgumentParser, counts: Iterable[tuple[str, int, int, str]]) -> None:
    """Add options that take a whole number: name, least value, default and meaning of each."""
    for name, low, value, what in counts:
        parser.add_argument(
            f"--{name}", metavar="N", type=at_least(low), default=value, help=f"{what} ({value})"
        )


def is_study() -> bool:
    """Whether this folder is that of a study, by a section that no other project's params.yaml has."""
    from parashot.parsing import read_yaml

    tree = read_yaml(PARAMS) if PARAMS.exists() else None
    return isinstance(tree, dict) and "batchsz_study" in tree


def study_here() -> Study:
    """Return the analysis of the study in this folder. Raises `RecordError` where nothing was measured."""
    from parashot.params import load_params
    from parashot.questions.results import load_results
    from parashot.questions.study import analyse

    params = load_params(PARAMS)
    study = analyse(load_results(Path(), params.parallel.strategies, partial=True), params)
    if not study.results.measured:
        raise RecordError("nothing was measured in this folder yet; run `dvc repro`, or `dvc checkout`")
    return study


def tell(line: str) -> None:
    """Print progress on stderr, beside what the command prints."""
    print(line, file=sys.stderr, flush=True)
