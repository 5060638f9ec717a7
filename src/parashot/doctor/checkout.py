"""What this checkout has: its environment, images, git, DVC's cache, MLflow's store, and room on the disk."""

from __future__ import annotations

import re
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from parashot.command import output
from parashot.doctor.machine import Check
from parashot.files import from_folder
from parashot.params import DataParams, Params
from parashot.questions.text import size
from parashot.tracking import Store

_PREFIX = "import sys; print(sys.prefix)"


def checkout_checks(root: Path, params: Params, needed: int) -> list[Check]:
    """Look at the checkout in `root`, where a study needs `needed` bytes."""
    return [
        python(shutil.which("python"), output(root, "python", "-c", _PREFIX), sys.prefix),
        images(root, params.data),
        git(root),
        cache(output(root, sys.executable, "-m", "dvc", "doctor")),
        store(root, params.tracking.experiment),
        disk(root, needed),
    ]


def python(on_path: str | None, its_prefix: str, prefix: str) -> Check:
    """Check that `python`, which DVC's stages call and whose prefix is `its_prefix`, is this one."""
    if its_prefix and Path(its_prefix).resolve() == Path(prefix).resolve():
        return Check("python", prefix, "DVC's stages run in this environment")
    found = f"`python` is {on_path or 'not on the path'}, this command runs in {prefix}"
    means = "DVC's stages would run elsewhere, where packages may be missing"
    return Check("python", found, means, "problem", f". {prefix}/bin/activate, or `make study`")


def images(root: Path, data: DataParams) -> Check:
    """Check that the images that params name can be had."""
    if data.archive is None:
        drawn = data.source == "synthetic"
        means = "drawn by a program" if drawn else "downloaded from one of several mirrors"
        return Check("images", data.source, means)
    if from_folder(root, data.archive).exists():
        return Check("images", f"{data.source} in {data.archive}", "read from there")
    fix = "correct data.archive in params.yaml, or set it to null"
    return Check("images", f"{data.archive} is not there", "stage source would stop", "problem", fix)


def git(root: Path) -> Check:
    """Check that experiments can be compared with a commit."""
    if output(root, "git", "rev-parse", "--is-inside-work-tree") != "true":
        means = "dvc exp run and dvc metrics diff compare with commits"
        fix = "clone the project with git; a downloaded archive has no history"
        return Check("git", "no repository", means, "problem", fix)
    name, email = (output(root, "git", "config", f"user.{key}") for key in ("name", "email"))
    if name and email:
        return Check("git", f"commits as {name} <{email}>", "dvc exp run and git commit work")
    means = "dvc exp run --queue and git commit need them"
    fix = "git config user.name NAME && git config user.email ADDRESS"
    return Check("git", "no name or address to commit with", means, "warning", fix)


def cache(doctor: str) -> Check:
    """Check how DVC's cache and the checkout share a file, by what `dvc doctor` prints."""
    found = re.search(r"^Cache types: (\w.*)$", doctor, re.MULTILINE)
    if "DVC version" not in doctor:
        fix = "`make setup`, or pip install 'parashot[study]'"
        return Check("DVC", "`python -m dvc` does not run", "no stage runs", "problem", fix)
    if found is None:
        return Check("DVC", "no cache yet", "the first `dvc repro` makes it")
    if re.search("link", found[1]):
        return Check("DVC", f"{found[1]} to its cache", "every output is on the disk once")
    fix = "put the checkout on ext4, xfs or btrfs, or the cache: `dvc cache dir --local PATH`"
    return Check("DVC", "copies from its cache", "every output takes its space twice", "warning", fix)


def store(root: Path, experiment: str) -> Check:
    """Check that MLflow's database is that of this checkout, where the user has named no other."""
    named = Store.of_environment(root, experiment)
    if named.uri:
        return Check("MLflow", f"MLFLOW_TRACKING_URI is {named.uri}", "runs are published there")
    database = root / "mlflow.db"
    if not database.exists():
        return Check("MLflow", "no mlflow.db yet", "the first `dvc repro` makes it")
    query = "select artifact_location from experiments where name = ?"
    found = "mlflow.db belongs to another place"
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            rows = connection.execute(query, (experiment,)).fetchall()
        if all(place == named.artifacts for (place,) in rows):
            return Check("MLflow", "mlflow.db is this checkout's", "`mlflow ui` shows every run")
    except sqlite3.Error as error:
        found = f"mlflow.db cannot be read ({error})"
    fix = "move mlflow.db and mlruns away; `dvc repro` publishes what results/ has"
    return Check("MLflow", found, "nothing can be published; results are safe", "warning", fix)


def disk(root: Path, needed: int) -> Check:
    """Check the room for a study that needs so many bytes."""
    free = shutil.disk_usage(root).free
    means = f"a study from nothing needs about {size(needed)}"
    if free < needed:
        fix = "free some space (parashot clean --yes), or move the checkout"
        return Check("disk", f"{size(free)} free", means, "problem", fix)
    return Check("disk", f"{size(free)} free", means)
