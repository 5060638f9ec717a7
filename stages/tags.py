"""What ties a run to its code, its experiment and its machine."""

import os
import subprocess
from functools import cache

from parashot.hardware import inspect_hardware


@cache
def tags() -> dict[str, str]:
    """Tags of every run that a stage records."""
    code = ("src", "stages", "params.yaml", "dvc.yaml")
    machine = inspect_hardware()
    return {
        "dvc.stage": os.environ.get("DVC_STAGE", ""),
        "dvc.experiment": os.environ.get("DVC_EXP_NAME", ""),
        "git.commit": git("rev-parse", "HEAD"),
        "git.dirty": str(bool(git("status", "--porcelain", "--untracked-files=no", "--", *code))).lower(),
        "hardware": f"{machine.cpu_model}, {machine.threads} threads; {', '.join(machine.gpus) or 'no GPU'}",
    }


def git(*arguments: str) -> str:
    """Output of git, or nothing where there is no git or it fails."""
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()
