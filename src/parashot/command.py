"""End of a stage or of a command line, in one line for an error that the user can mend; other programs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from parashot.errors import ParashotError, UsageError, one_line
from parashot.progress import end_line

OF_STUDY = {"hydra", "ruamel", "safetensors"}
"""Libraries that extra `study` brings, and that are imported where they are used."""


def guarded(run: Callable[[], object]) -> int:
    """Call `run` and return the exit status; an error that the user can mend becomes one line on stderr."""
    try:
        run()
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader has gone: what is still buffered must not be written again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ParashotError, OSError, RuntimeError, MemoryError, ModuleNotFoundError) as error:
        said = one_line(error) if isinstance(error, ParashotError | OSError) else _advice(error)
        if said is None:
            raise
        end_line()
        print(f"error: {said}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    return 0


def output(folder: Path, *command: str) -> str:
    """What a program run in `folder` prints; empty where it is not there, fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _advice(error: Exception) -> str | None:
    """Return advice for the errors of Python and torch that the user can mend, else None."""
    if isinstance(error, ModuleNotFoundError):
        library = (error.name or "").partition(".")[0]
        missing = f'{library} is not installed; pip install "parashot[study]"'
        return missing if library in OF_STUDY else None
    smaller = "set a smaller train.batchsz, episode.k_query or model.image_size"
    if type(error).__name__ == "OutOfMemoryError":
        return f"the GPU's memory is full; {smaller}"
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return f"the memory is full; {smaller}, or use fewer loader workers"
    if "DataLoader worker" in str(error):
        return (
            f"{one_line(error)}; where shared memory is small (a container's --shm-size), "
            "use fewer loader workers or a smaller batchsz"
        )
    return None
