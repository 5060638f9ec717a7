"""How a file differs from what it should be: by damage, or because someone has written another."""

from __future__ import annotations

from pathlib import Path

import numpy as np

_BLOCK = 2**22
_FEW = 4096
"""Bytes: what a disk loses at once."""


def damage(path: Path, good: Path) -> str | None:
    """What happened to `path`, once equal to `good`, in words; None where it is another file altogether.

    Damage leaves most bytes as they were. Who writes a file anew seldom meets its length and its bytes.
    """
    size, whole = path.stat().st_size, good.stat().st_size
    if size > whole:
        return None
    differing = _differing_bytes(path, good)
    if size < whole:
        return f"cut off after {size} of {whole} bytes" if differing == 0 else None
    return f"{differing} of {whole} bytes differ" if differing <= max(_FEW, whole // 8) else None


def _differing_bytes(path: Path, good: Path) -> int:
    """Over the length of `path`."""
    count = 0
    with path.open("rb") as left, good.open("rb") as right:
        while block := left.read(_BLOCK):
            other = right.read(len(block))
            count += int((np.frombuffer(block, np.uint8) != np.frombuffer(other, np.uint8)).sum())
    return count
