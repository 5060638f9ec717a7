"""What torch.save wrote, read from anyone: tensors and plain containers, and nothing is executed."""

from __future__ import annotations

import errno
import zipfile
from pathlib import Path
from typing import Any

import torch

from parashot.opcodes import check_opcodes


def load_tensors(path: Path) -> Any:
    """Read the file onto the CPU.

    Raises `OSError` where it cannot be opened, and `ValueError` where it is no such file, is damaged, asks
    for anything else, or would grow beyond its own size.
    """
    try:
        with path.open("rb"):
            check_whole(path)
            _check_pickles(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except Exception as error:  # on malformed bytes, torch and zipfile raise almost anything
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # no offset in a file
            raise
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error


def check_whole(path: Path) -> None:
    """Compare every member with its checksum: torch.load does not. Raises whatever zipfile does.

    torch.save stores members as they are: one that is packed, or claims to be larger, is none of its.
    """
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        if sum(each.file_size for each in entries) > path.stat().st_size:
            raise ValueError("larger inside than outside")
        if any(each.compress_type != zipfile.ZIP_STORED for each in entries):
            raise ValueError("packed")
        if (damaged := archive.testzip()) is not None:
            raise ValueError(f"{damaged} is damaged")


def _check_pickles(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith("data.pkl"):
                with archive.open(name) as file:
                    check_opcodes(file)
