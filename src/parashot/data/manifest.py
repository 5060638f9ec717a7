"""manifest.json of a packed folder: what each split holds, and a checksum of every file beside it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TypeVar

from pydantic import PositiveInt, TypeAdapter, ValidationError

from parashot.errors import DataError, first_fault
from parashot.records import record

MANIFEST = "manifest.json"
AGAIN = "run `dvc repro --force --single-item pack` to make it again"

T = TypeVar("T")


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
    """Read manifest.json of a packed folder. Raises `DataError` where it is missing or none."""
    return read_json(PackManifest, folder / MANIFEST, AGAIN)


def read_json(kind: type[T], path: Path, advice: str) -> T:
    """Read a pydantic dataclass from JSON. Raises `DataError` where the file is missing or none of it."""
    try:
        return TypeAdapter(kind).validate_json(path.read_bytes())
    except FileNotFoundError as error:
        raise DataError(f"{path}: missing; {advice}") from error
    except ValidationError as error:
        raise DataError(f"{path}: not a {kind.__name__} ({first_fault(error)}); {advice}") from error


def sha256(path: Path) -> str:
    """Return the checksum of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
