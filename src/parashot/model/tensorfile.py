"""Check of the zip that torch.save writes; `train/checkpoint.py` is its only user."""

from __future__ import annotations

import zipfile
from pathlib import Path


def check_whole(path: Path) -> None:
    """Compare every member with its checksum: torch.load does not. Raises `ValueError` or `BadZipFile`."""
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise ValueError(f"{damaged} is damaged")
