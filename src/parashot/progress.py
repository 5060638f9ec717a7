"""How far a long work has come: on a terminal one line that is rewritten, elsewhere what it ends with."""

from __future__ import annotations

import logging
import shutil
import sys
import time
from typing import TextIO

from parashot.secrets import without_secrets

log = logging.getLogger(__name__)

_BACK_AND_CLEAR = "\r\x1b[K"


class Progress:
    """`progress(done)` after each part of a work of `total` parts tells rate and remaining time."""

    def __init__(self, name: str, total: int, unit: str) -> None:
        self.name, self.total, self.unit = name, total, unit
        self._begin = time.monotonic()

    def __call__(self, done: int) -> None:
        """Tell that `done` parts are done."""
        seconds = time.monotonic() - self._begin
        if done >= self.total:
            log.info("%s: %d %ss in %s", self.name, self.total, self.unit, span(seconds))
            return
        left = seconds / done * (self.total - done)
        passing("%s: %s %d of %d, %s left", self.name, self.unit, done, self.total, span(left))


def passing(text: str, *arguments: object) -> None:
    """Tell what the next line may take the place of."""
    log.info(text, *arguments, extra={"passing": True})


def span(seconds: float) -> str:
    """Say a time in seconds, minutes or hours, whole ones."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


class OneLine(logging.StreamHandler[TextIO]):
    """Writes to stderr; a line that passes is replaced by the next one, and left out where nobody looks."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self._open = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        if not getattr(record, "passing", False):
            self.terminator = "\n"
        elif self.stream.isatty():
            self.terminator = ""
        else:
            return
        if self._open:
            self.stream.write(_BACK_AND_CLEAR)
        self._open = self.terminator == ""
        super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        """A line without secrets. One that passes must not wrap: it could not be taken back."""
        text = without_secrets(super().format(record))
        return text[: shutil.get_terminal_size().columns - 1] if self.terminator == "" else text

    def close(self) -> None:
        """End the line that is open."""
        if self._open:
            self._open = False
            self.stream.write("\n")
        super().close()
