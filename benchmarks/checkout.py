"""This checkout as benchmarks use it: its root, a scratch folder on its disk, commands run with its code."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from parashot.errors import DeviceError, one_line

ROOT = Path(__file__).resolve().parents[1]


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a temporary folder in the checkout's .scratch, which neither git nor DVC looks at."""
    above = ROOT / ".scratch"
    above.mkdir(exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="benchmark-", dir=above) as folder:
            yield Path(folder)
    finally:
        with suppress(OSError):  # stages keep unfinished work there too
            above.rmdir()


def run_command(*command: str, folder: Path = ROOT) -> str:
    """Run a command in `folder` with this checkout's code and interpreter, and return its output.

    Raises `DeviceError` in one line where it cannot start or fails: with the last line of stderr.
    """
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment(), capture_output=True, text=True, check=True
        )
    except OSError as error:
        raise DeviceError(f"{command[0]} cannot be started: {one_line(error)}") from error
    except subprocess.CalledProcessError as error:
        lines: list[str] = error.stderr.strip().splitlines()
        reason = lines[-1] if lines else "no message"
        raise DeviceError(f"{' '.join(command)} ended with {error.returncode}: {reason}") from error
    return done.stdout


def environment() -> Mapping[str, str]:
    """Environment of this process for the checkout's own code, without variables of DVC, MLflow and git."""
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("DVC_", "MLFLOW_", "GIT_"))
    }
    scripts, sources = str(Path(sys.executable).parent), str(ROOT / "src")
    kept["PATH"] = os.pathsep.join([scripts, kept.get("PATH", os.defpath)])
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, [sources, kept.get("PYTHONPATH", "")]))
    return kept | {"DVC_NO_ANALYTICS": "1"}
