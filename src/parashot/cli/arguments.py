"""Shared by the parsers of several commands."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

LARGEST = 2**31 - 1
"""Of whole numbers, here as in params.yaml."""


def at_least(low: int) -> Callable[[str], int]:
    """Return a type of argument: a whole number from `low` to `LARGEST`."""

    def whole_number(text: str) -> int:
        if not low <= int(text) <= LARGEST:
            raise argparse.ArgumentTypeError(f"{text} is not between {low} and {LARGEST}")
        return int(text)

    return whole_number


def tell(line: str) -> None:
    """Print progress on stderr, beside what the command prints."""
    print(line, file=sys.stderr, flush=True)
