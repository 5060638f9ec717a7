"""What dvc.lock says: which outputs there are, of which stage, with which checksum."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parashot.errors import DataError
from parashot.params import read_yaml

LOCK = "dvc.lock"

_MD5 = re.compile(r"[0-9a-f]{32}(\.dir)?")


@dataclass(frozen=True)
class Output:
    """A file or folder that a stage makes."""

    path: str  # relative to the checkout
    stage: str
    md5: str  # of the bytes of a file; of a folder, that of its list of files, and `.dir`
    files: int

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return self.md5.endswith(".dir")


def read_lock(root: Path) -> list[Output]:
    """Every output of dvc.lock in `root`; none where nothing has been built yet.

    Raises `DataError` or `ParamsError` where the file is not one of DVC's.
    """
    path = root / LOCK
    if not path.exists():
        return []
    try:
        return list(_outputs(read_yaml(path)))
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise DataError(f"{path}: not as DVC writes it; `git checkout {LOCK}` brings it back") from error


def _outputs(tree: Any) -> Iterator[Output]:
    for stage, entry in tree["stages"].items():
        for out in entry.get("outs", []):
            if not _MD5.fullmatch(out["md5"]):
                raise ValueError(out["md5"])
            yield Output(str(out["path"]), str(stage), out["md5"], int(out.get("nfiles", 1)))
