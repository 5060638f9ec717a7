"""The packed data on their way to the nodes, which need not share a disk with this machine."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from parashot.data.manifest import MANIFEST, sha256
from parashot.errors import DataError
from parashot.files import replacing_folder

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Delivery:
    """Place of the packed data on the machine that sent them, and how to get each file elsewhere."""

    path: Path
    checksum: str  # of the manifest, which holds that of every file
    files: Mapping[str, Any] = field(default_factory=dict)  # name -> what `share` made of its bytes


def send(packed: Path, share: Callable[[Bytes], Any] | None) -> Delivery:
    """Make the packed folder ready for other machines; without `share`, there are none."""
    files = sorted(packed.iterdir()) if share else []
    shared = {file.name: share(np.fromfile(file, dtype=np.uint8)) for file in files if share}
    return Delivery(packed.resolve(), sha256(packed / MANIFEST), shared)


def receive(delivery: Delivery, folder: Path, fetch: Callable[[Any], Bytes]) -> Path:
    """Return a packed folder on this machine: the sender's own where it is seen here, else one in `folder`.

    Files are written once per machine, however many runs need them. Raises `DataError`.
    """

    def is_there(packed: Path) -> bool:
        return (packed / MANIFEST).is_file() and sha256(packed / MANIFEST) == delivery.checksum

    if is_there(delivery.path):
        return delivery.path
    if not delivery.files:
        raise DataError(f"{delivery.path}: gone or changed since the sweep began; start it again")
    here = folder / delivery.checksum[:24]
    with here.with_suffix(".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_there(here):
            with replacing_folder(here) as unpacked:
                for name, file in delivery.files.items():
                    (unpacked / name).write_bytes(fetch(file).data)
    return here
