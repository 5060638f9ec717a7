"""manifest.json of a packed folder: version, shapes, and a checksum of every file beside it.

It is read without belief: every value is checked, so that shapes can be compared with files before those are
opened (`packed.py`), and contents with checksums when asked.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from pydantic import Field

from parashot.errors import DataError, ParamsError, one_line
from parashot.files import write_text
from parashot.parsing import parse
from parashot.records import record

MANIFEST = "manifest.json"
VERSION = 1
AGAIN = "run `dvc repro --force --single-item pack` to make it again"

_MOST = 2**40
_SPLITS = {"train", "val", "test"}
_SHA256 = re.compile(r"[0-9a-f]{64}")


@record
class SplitManifest:
    """What one packed split holds."""

    classes: tuple[str, ...]
    images: Annotated[int, Field(ge=1, le=_MOST)]
    height: Annotated[int, Field(ge=1, le=2**16)]
    width: Annotated[int, Field(ge=1, le=2**16)]
    episodes: Annotated[int, Field(ge=0, le=_MOST)]
    """Packed episodes; 0 for train, whose episodes are drawn when asked."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The files of this split, after its name."""
        always = ("images.npy", "encoded.bin", "offsets.npy", "sizes.npy")
        return (*always, "episodes.npy") if self.episodes else always


@record
class _Head:
    version: int
    source: str
    encoding: str
    skipped: Annotated[int, Field(ge=0, le=_MOST)]
    resized_to: Annotated[int, Field(ge=1, le=2**16)] | None
    """None: every image is as large as it came."""


@record
class PackManifest(_Head):
    """manifest.json of a packed folder."""

    splits: dict[str, SplitManifest]
    sha256: dict[str, str]
    """By file name."""


def write_manifest(folder: Path, manifest: PackManifest) -> None:
    """Write manifest.json of a packed folder."""
    write_text(folder / MANIFEST, json.dumps(asdict(manifest), indent=2) + "\n")


def read_manifest(folder: Path) -> PackManifest:
    """Read and check manifest.json of a packed folder. Raises `DataError`."""
    path = folder / MANIFEST
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(tree, dict) and tree.get("version", VERSION) != VERSION:
            found = parse(_Version, {"version": tree["version"]}).version
            raise DataError(
                f"{path}: format {found}, {VERSION} is needed; run `dvc repro pack` to make it again"
            )
        return _manifest(tree)
    except FileNotFoundError as error:
        raise DataError(f"{path}: missing; run `dvc repro pack` to make it") from error
    except (OSError, ValueError, RecursionError, ParamsError) as error:
        raise DataError(f"{path}: not a packed data set ({one_line(error)}); {AGAIN}") from error


@record
class _Version:
    version: int


def _manifest(tree: object) -> PackManifest:
    """Check plain JSON data. Raises `ParamsError` or `ValueError`."""
    head = dict(_mapping(tree, "manifest"))
    found, sums = _mapping(head.pop("splits", None), "splits"), _mapping(head.pop("sha256", None), "sha256")
    if not found or not found.keys() <= _SPLITS:
        raise ValueError("splits: some of train, val and test are needed")
    splits = {name: parse(SplitManifest, each, f"splits.{name}") for name, each in found.items()}
    for each in splits.values():
        "".join(each.classes).encode()  # JSON can spell halves of characters, which nobody can print
    if not sums.keys() <= set(_files(splits)):
        raise ValueError("sha256: only the files of the splits have one")
    checksums = {
        name: each for name, each in sums.items() if isinstance(each, str) and _SHA256.fullmatch(each)
    }
    if checksums.keys() != sums.keys():
        raise ValueError("sha256: not all of them are checksums")
    return PackManifest(**asdict(parse(_Head, head)), splits=splits, sha256=checksums)


def _mapping(tree: object, name: str) -> Mapping[str, object]:
    if not isinstance(tree, dict):
        raise ValueError(f"{name}: an object is needed")
    return tree


def _files(splits: Mapping[str, SplitManifest]) -> list[str]:
    """Names of all files but the manifest."""
    return [f"{name}.{part}" for name, each in splits.items() for part in each.parts]


def verify(folder: Path) -> None:
    """Compare every file of a packed folder with its checksum.

    Raises `DataError` naming the first that differs.
    """
    for path in damaged(folder):
        raise DataError(f"{path}: damaged or missing; run `parashot verify` to see how to mend it")


def damaged(folder: Path) -> Iterator[Path]:
    """Yield the files of a packed folder that are missing or unlike their checksum. Raises `DataError`."""
    manifest = read_manifest(folder)
    for name in _files(manifest.splits):
        path = folder / name
        if not path.is_file() or sha256(path) != manifest.sha256.get(name):
            yield path


def sha256(path: Path) -> str:
    """Checksum of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
