"""Progress of long work: on a terminal one line that is rewritten, elsewhere only its last line."""

from __future__ import annotations

import logging
import shutil
import sys
import time
from typing import TextIO

log = logging.getLogger(__name__)

_BACK_AND_CLEAR = "\r\x1b[K"


class Progress:
    """Progress of work in `total` parts: `progress(done)` after each part logs the time that is left."""

    def __init__(self, name: str, total: int, unit: str) -> None:
        self.name, self.total, self.unit = name, total, unit
        self._begin = time.monotonic()

    def __call__(self, done: int) -> None:
        """Log that `done` parts are done."""
        seconds = time.monotonic() - self._begin
        if done >= self.total:
            units = self.unit if self.total == 1 else f"{self.unit}s"
            log.info("%s: %d %s in %s", self.name, self.total, units, span(seconds))
            return
        left = seconds / done * (self.total - done)
        passing("%s: %s %d of %d, %s left", self.name, self.unit, done, self.total, span(left))


def passing(text: str, *arguments: object) -> None:
    """Log a line that the next one replaces on a terminal."""
    log.info(text, *arguments, extra={"passing": True})


def end_line() -> None:
    """End the line that is open, before anything else is printed."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, OneLine):
            handler.end()


def span(seconds: float) -> str:
    """Return a time in words: whole seconds, whole minutes, or hours."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


class OneLine(logging.StreamHandler[TextIO]):
    """Handler for stderr: a passing line is replaced by the next one, and left out without a terminal."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self._open = False

    def emit(self, record: logging.LogRecord) -> None:
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
        """Return the line, cut where a passing one would wrap: a wrapped line cannot be replaced."""
        text = super().format(record)
        return text[: shutil.get_terminal_size().columns - 1] if self.terminator == "" else text

    def end(self) -> None:
        """End the line that is open."""
        if self._open:
            self._open = False
            self.stream.write("\n")
            self.stream.flush()

    def close(self) -> None:
        self.end()
        super().close()
