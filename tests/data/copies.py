"""Small images, and the same files as a folder, a tar or a zip."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np

from parashot.data.images import encode_jpeg

Files = dict[str, bytes]


def jpeg(number: int) -> bytes:
    """One of many different JPEGs of 8×8 pixels."""
    colour = np.random.default_rng(number).integers(0, 256, 3)
    return encode_jpeg(np.broadcast_to(colour, (8, 8, 3)).astype(np.uint8))


def as_folder(path: Path, files: Files) -> Path:
    """Write the files into the folder `path`."""
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def as_tar(path: Path, files: Files, mode: str = "w") -> Path:
    """Write the files into a tar; `mode` as for `tarfile.open`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def as_zip(path: Path, files: Files) -> Path:
    """Write the files into a compressed zip."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path
