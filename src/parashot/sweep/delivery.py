"""The packed data on their way to the nodes, which need not share a disk with this machine."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from parashot.data.manifest import MANIFEST, read_manifest, sha256
from parashot.errors import DataError
from parashot.files import replacing_folder

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Delivery:
    """Where the packed data are on the machine that sent them, and how to get each file elsewhere."""

    path: Path
    checksum: str  # of the manifest, which holds that of every file
    files: Mapping[str, Any] = field(default_factory=dict)  # name -> what `share` made of its bytes


def send(packed: Path, share: Callable[[Bytes], Any] | None) -> Delivery:
    """Make the packed folder ready for other machines; without `share`, there are none."""
    names = [*read_manifest(packed).sha256, MANIFEST] if share else []
    files = {name: share(np.fromfile(packed / name, dtype=np.uint8)) for name in names if share}
    return Delivery(packed.resolve(), sha256(packed / MANIFEST), files)


def receive(delivery: Delivery, folder: Path, fetch: Callable[[Any], Bytes]) -> Path:
    """Return a packed folder on this machine: the sender's own where it is seen here, else one in `folder`.

    Files are written once per machine, however many runs need them. Raises `DataError`.
    """
    if _is_there(delivery.path, delivery.checksum):
        return delivery.path
    if not delivery.files:
        raise DataError(f"{delivery.path}: gone or changed since the sweep began; start it again")
    here = folder / delivery.checksum[:24]
    with here.with_suffix(".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_there(here, delivery.checksum):
            with replacing_folder(here) as unpacked:
                for name, file in delivery.files.items():
                    (unpacked / name).write_bytes(fetch(file).data)
    return here


def _is_there(packed: Path, checksum: str) -> bool:
    manifest = packed / MANIFEST
    return manifest.is_file() and sha256(manifest) == checksum
