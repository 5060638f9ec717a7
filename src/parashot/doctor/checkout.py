"""What this checkout has: its environment, DVC's cache, git, MLflow's store, and room on the disk."""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from parashot.doctor.check import Check
from parashot.params import Params
from parashot.questions.text import size

FICLONE = 0x40049409
"""The request of ioctl(2) that lets a file share another one's blocks (linux/fs.h)."""

_PREFIX = "import sys; print(sys.prefix)"


def checkout_checks(root: Path, params: Params) -> list[Check]:
    """Look at the checkout in `root`."""
    return [
        python(shutil.which("python"), _output(root, "python", "-c", _PREFIX), sys.prefix),
        images(root, params),
        git(root),
        cache(Path(_output(root, sys.executable, "-m", "dvc", "cache", "dir") or root / ".dvc/cache"), root),
        store(root, params.tracking.experiment),
    ]


def python(on_path: str | None, its_prefix: str, prefix: str) -> Check:
    """Whether DVC's stages, which call `python`, call this one; `its_prefix` is what that one says."""
    if its_prefix and Path(its_prefix).resolve() == Path(prefix).resolve():
        return Check("python", prefix, "DVC's stages run in this environment")
    return Check(
        "python",
        f"`python` is {on_path or 'not on the path'}, this command runs in {prefix}",
        "DVC's stages would run elsewhere, where packages may be missing",
        "problem",
        f". {prefix}/bin/activate, or `make study`",
    )


def images(root: Path, params: Params) -> Check:
    """Whether the images that params name can be had."""
    source, archive = params.data.source, params.data.archive
    if archive is None:
        if source == "folder":
            return Check(
                "images", "no folder is named", "nothing to train on", "problem", "-S data.archive=PATH"
            )
        where = "drawn by a program" if source == "synthetic" else "downloaded from one of several mirrors"
        return Check("images", source, where)
    path = root / archive
    if path.exists():
        return Check("images", f"{source} in {archive}", "read from there")
    fix = "correct data.archive in params.yaml, or set it to null"
    return Check("images", f"{archive} is not there", "stage source would stop", "problem", fix)


def git(root: Path) -> Check:
    """Whether experiments can be compared with a commit."""
    if _output(root, "git", "rev-parse", "--is-inside-work-tree") != "true":
        return Check(
            "git",
            "no repository",
            "dvc exp run and dvc metrics diff compare with commits",
            "problem",
            "clone the project with git; a downloaded archive has no history",
        )
    name, email = (_output(root, "git", "config", f"user.{key}") for key in ("name", "email"))
    if name and email:
        return Check("git", f"commits as {name} <{email}>", "dvc exp run and make study can commit")
    return Check(
        "git",
        "no name or address to commit with",
        "make study commits dvc.lock as parashot@localhost",
        "warning",
        "git config user.name NAME && git config user.email ADDRESS",
    )


def cache(folder: Path, root: Path) -> Check:
    """How DVC's cache in `folder` and the checkout in `root` share a file."""
    folder.mkdir(parents=True, exist_ok=True)
    ways: dict[str, Callable[[Path, Path], object]] = {
        "reflink": _reflink,
        "hardlink": os.link,
        "symlink": os.symlink,
    }
    with tempfile.TemporaryDirectory(dir=folder) as there, tempfile.TemporaryDirectory(dir=root) as here:
        source = Path(there) / "file"
        source.write_bytes(b"x" * 4096)
        for name, make in ways.items():
            try:
                make(source, Path(here) / name)
            except OSError:
                continue
            return Check("DVC cache", f"{name}s", "every output is on the disk once, in checkout and cache")
    return Check(
        "DVC cache",
        "copies: this file system has no links of any kind",
        "every output takes its space twice",
        "warning",
        "put the checkout on ext4, xfs or btrfs, or the cache: `dvc cache dir --local PATH`",
    )


def store(root: Path, experiment: str) -> Check:
    """Whether MLflow's database is that of this checkout."""
    database = root / "mlflow.db"
    if not database.exists():
        return Check("MLflow", "no mlflow.db yet", "the first `dvc repro` makes it")
    query = "select artifact_location from experiments where name = ?"
    try:
        connection = sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)
        try:
            found = connection.execute(query, (experiment,)).fetchone()
        finally:
            connection.close()
    except sqlite3.Error as error:
        return Check(
            "MLflow",
            f"mlflow.db cannot be read ({error})",
            "nothing can be published; results are safe in results/",
            "problem",
            "move mlflow.db and mlruns away; `dvc repro` publishes everything again",
        )
    home = (root / "mlruns").resolve().as_uri()
    if found is not None and not str(found[0]).startswith(home):
        return Check(
            "MLflow",
            f"mlflow.db belongs to another place ({found[0]})",
            "the checkout was moved or copied: nothing can be published",
            "problem",
            "delete mlflow.db and mlruns (parashot clean mlflow); `dvc repro` publishes everything again",
        )
    return Check("MLflow", "mlflow.db is this checkout's", "`mlflow ui` shows every run")


def disk(root: Path, needed: int) -> Check:
    """Room for a study that needs so many bytes."""
    free = shutil.disk_usage(root).free
    found = f"{size(free)} free"
    if free < needed:
        fix = "free some space (parashot clean), or move the checkout"
        return Check("disk", found, f"a study from nothing needs about {size(needed)}", "problem", fix)
    return Check("disk", found, f"a study from nothing needs about {size(needed)}")


def _reflink(source: Path, target: Path) -> None:
    with source.open("rb") as old, target.open("wb") as new:
        fcntl.ioctl(new.fileno(), FICLONE, old.fileno())


def _output(root: Path, *command: str) -> str:
    """What a program prints, or nothing where it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
