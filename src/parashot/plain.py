"""Text for a terminal or a spreadsheet: aligned columns, names that can disturb neither, a likely one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

_LONGEST = 2_000
_FORMULA = re.compile(r"'*[=+\-@\t\r]")


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Render rows of cells, the first being the header, as left-aligned columns; every line ends."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def printable(text: str) -> str:
    """Escape everything in `text` that could disturb a terminal or a line."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def line(text: str) -> str:
    """Return `text` as one line of bounded length; of a longer one the middle is left out."""
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST * 3 // 4]} … {text[-_LONGEST // 4 :]}"
    return printable(text)


def cell(text: str) -> str:
    """Return `text` for a CSV, with a `'` before what a spreadsheet would take for a formula."""
    return f"'{text}" if _FORMULA.match(text) else text


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Ask for the nearest of `known`, with a space at the end; empty where none is near."""
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {near[0]}? " if near else ""
