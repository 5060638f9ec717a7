"""manifest.json of a packed folder: what each split holds, and a checksum of every file beside it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic import PositiveInt

from parashot.records import read_result, record

MANIFEST = "manifest.json"


@record
class SplitManifest:
    """Shape of one packed split."""

    classes: tuple[str, ...]
    images: PositiveInt
    height: PositiveInt
    width: PositiveInt


@record
class PackManifest:
    """manifest.json of a packed folder."""

    splits: dict[str, SplitManifest]
    sha256: dict[str, str]
    """By file name: they identify the contents."""


def read_manifest(folder: Path) -> PackManifest:
    """Read manifest.json of a packed folder. Raises `RecordError` where it is missing or none."""
    return read_result(PackManifest, folder / MANIFEST)


def sha256(path: Path) -> str:
    """Return the checksum of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
