"""DVC's cache: objects named after the MD5 of what is in them, and lists of the files of a folder."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from parashot.integrity.digests import Digests

_OBJECT = re.compile(r"[0-9a-f]{2}/[0-9a-f]{30}(\.dir)?")


def cache_folder(root: Path) -> Path:
    """Where DVC keeps what the checkout in `root` has made."""
    command = [sys.executable, "-m", "dvc", "cache", "dir"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    return Path(done.stdout.strip()) if done.returncode == 0 else root / ".dvc/cache"


class Cache:
    """The objects in a cache folder, which need not exist."""

    def __init__(self, folder: Path) -> None:
        self._objects = folder / "files/md5"

    def place(self, name: str) -> Path:
        """Where an object is, if it is there."""
        return self._objects / name[:2] / name[2:]

    def names(self) -> list[str]:
        """The name of every object, sorted; what a killed DVC left half-written is none."""
        paths = (path for path in self._objects.glob("*/*"))
        return sorted(
            path.parent.name + path.name
            for path in paths
            if _OBJECT.fullmatch(path.relative_to(self._objects).as_posix())
        )

    def is_whole(self, name: str, digests: Digests) -> bool:
        """Whether an object is there, and is what its name says."""
        try:
            return digests.md5(self.place(name)) == name.removesuffix(".dir")
        except OSError:
            return False

    def listed(self, name: str, digests: Digests) -> dict[str, str] | None:
        """The files of a folder, by their paths within it, with their MD5; None without a whole list."""
        if not self.is_whole(name, digests):
            return None
        return {each["relpath"]: each["md5"] for each in json.loads(self.place(name).read_bytes())}


def folder_md5(files: Mapping[str, str]) -> str:
    """The name that DVC gives to the list of these files."""
    entries = [{"md5": md5, "relpath": path} for path, md5 in sorted(files.items())]
    text = json.dumps(entries, sort_keys=True).encode()
    return f"{hashlib.md5(text, usedforsecurity=False).hexdigest()}.dir"
