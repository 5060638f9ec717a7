"""What the parsers of several commands share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


LARGEST = 2**31 - 1
"""Of whole numbers, here as in params.yaml."""


def at_least(low: int) -> Callable[[str], int]:
    """A type of argument: a whole number from `low` to `LARGEST`."""

    def whole_number(text: str) -> int:
        if int(text) < low:
            raise argparse.ArgumentTypeError(f"{text} is below {low}")
        if int(text) > LARGEST:
            raise argparse.ArgumentTypeError(f"{text} is above {LARGEST}")
        return int(text)

    return whole_number


def tell(line: str) -> None:
    """Progress, beside what the command prints."""
    print(line, file=sys.stderr, flush=True)
