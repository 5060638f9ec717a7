"""MD5 of files by reading them, each once, under however many names it goes."""

from __future__ import annotations

import hashlib
from pathlib import Path


class Digests:
    """No time stamp and no data base is asked: they do not change when a bit does."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], str] = {}
        self.bytes = 0

    def md5(self, path: Path) -> str:
        """MD5 of a file's content. Raises `OSError`."""
        about = path.stat()
        key = about.st_dev, about.st_ino
        if key not in self._known:
            with path.open("rb") as file:
                self._known[key] = hashlib.file_digest(file, _md5).hexdigest()
            self.bytes += about.st_size
        return self._known[key]


def _md5() -> hashlib._Hash:
    return hashlib.md5(usedforsecurity=False)
