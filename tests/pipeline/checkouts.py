"""Real repositories in temporary folders, and the smallest study there is."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml
from tiny_data import SETTINGS

from parashot.knobs import apply
from parashot.parsing import Value

ROOT = Path(__file__).parents[2]
PARTS = ("src", "stages", ".dvc", ".dvcignore", ".gitignore", "dvc.yaml", "params.yaml", "mlruns/.gitkeep")
"""What a study needs of this project."""

TINY: dict[str, Value] = {
    **SETTINGS,
    "train.episodes": 8,
    "train.batchsz": 4,
    "parallel.bench.blocks": 7,
}


@dataclass(frozen=True)
class Checkout:
    """A git and DVC repository."""

    root: Path

    def run(self, *command: str, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command in it, with this interpreter's scripts first on the path."""
        done = subprocess.run(
            command,
            cwd=self.root,
            env={**shell_environment(), **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=800,
        )
        assert not check or done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done

    def start(self, *command: str, **environment: str) -> psutil.Popen:
        """Start a command in it, in a session of its own; what it says goes into log.txt."""
        with (self.root / "log.txt").open("ab") as log:
            return psutil.Popen(
                command,
                cwd=self.root,
                env={**shell_environment(), **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=hear_ctrl_c,
            )

    def read(self, name: str) -> str:
        return (self.root / name).read_text(encoding="utf-8")

    def query(self, sql: str) -> list[Any]:
        """Rows out of MLflow's store."""
        with closing(sqlite3.connect(self.root / "mlflow.db")) as database:
            return database.execute(sql).fetchall()

    def turn(self, settings: dict[str, Value]) -> None:
        """Set knobs in params.yaml."""
        tree = apply(yaml.safe_load(self.read("params.yaml")), settings)
        (self.root / "params.yaml").write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")

    def commit(self) -> None:
        self.run("git", "add", "--all")
        self.run("git", "commit", "--quiet", "--allow-empty", "-m", "a commit")

    def restore(self) -> None:
        """Return to the last commit and its results."""
        self.run("git", "checkout", "--quiet", "--", ".")
        self.run("git", "clean", "--quiet", "-fd")
        self.run("dvc", "checkout", "--force")


def hear_ctrl_c() -> None:
    """Undo that what a shell starts in the background ignores Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def shell_environment() -> dict[str, str]:
    """The environment of a user who has activated this interpreter's."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("DVC_", "MLFLOW_"))}
    return {**clean, "PATH": path, "DVC_NO_ANALYTICS": "1"}


def stages_run(output: str) -> set[str]:
    """Names in DVC's lines "Running stage 'NAME':"."""
    return set(re.findall(r"^Running stage '(.*)'", output, re.MULTILINE))


def copy_project(root: Path, parts: tuple[str, ...] = PARTS) -> None:
    """Copy parts of this project, without what git ignores in them."""
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "cache", "tmp", "config.local")
    for part in parts:
        (root / part).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, root / part, ignore=ignored)
        else:
            shutil.copy(ROOT / part, root / part)


def new_repository(root: Path) -> Checkout:
    """Turn a folder into a repository with one commit."""
    checkout = Checkout(root)
    checkout.run("git", "init", "--quiet", "--initial-branch=main")
    settings = {"user.name": "tester", "user.email": "tester@localhost", "commit.gpgsign": "false"}
    for key, value in settings.items():
        checkout.run("git", "config", key, value)
    checkout.commit()
    return checkout


def copied(checkout: Checkout, root: Path) -> Checkout:
    """A copy with all its results; MLflow's store belongs to its own checkout."""
    left_out = shutil.ignore_patterns("mlflow.db*", "mlruns", "log.txt")
    shutil.copytree(checkout.root, root, symlinks=True, ignore=left_out)
    return Checkout(root)
