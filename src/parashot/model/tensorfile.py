"""What torch.save wrote, read from anyone: tensors and plain containers, and nothing is executed."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import torch

from parashot.opcodes import check_opcodes


def load_tensors(path: Path) -> Any:
    """Read the file onto the CPU.

    Raises `OSError` where it cannot be opened, and `ValueError` where it is no such file, asks for anything
    else, or would grow beyond its own size.
    """
    try:
        with path.open("rb"):
            _check(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # on malformed bytes, torch and zipfile raise almost anything
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error


def _check(path: Path) -> None:
    """torch.save stores every member as it is: one that is packed, or claims to be larger, is none of its."""
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        if sum(each.file_size for each in entries) > path.stat().st_size:
            raise ValueError("larger inside than outside")
        if any(each.compress_type != zipfile.ZIP_STORED for each in entries):
            raise ValueError("packed")
        for each in entries:
            if each.filename.endswith("data.pkl"):
                with archive.open(each) as file:
                    check_opcodes(file)
