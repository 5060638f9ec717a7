"""A folder for what a benchmark writes: on the disk that the checkout lies on, gone afterwards."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a new folder in the checkout's .scratch, which neither git nor DVC looks at."""
    above = ROOT / ".scratch"
    above.mkdir(exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="benchmark-", dir=above) as folder:
            yield Path(folder)
    finally:
        with suppress(OSError):  # stages keep unfinished work there too
            above.rmdir()
