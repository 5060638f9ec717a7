"""Text for a terminal: tables of aligned columns, and names that cannot disturb a line."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Render rows of cells, the first being the header, as left-aligned columns; every line ends."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def printable(text: str) -> str:
    """`text` with everything that could disturb a terminal or a line escaped."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
