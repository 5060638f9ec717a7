"""What this checkout has: its environment, images, git, DVC's cache, MLflow's store, and room on the disk."""

from __future__ import annotations

import re
import shutil
import sys
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
    """Say where runs are published."""
    uri = Store.of_environment(root, experiment).uri
    found = f"MLFLOW_TRACKING_URI is {uri}" if uri else "mlflow.db of this checkout"
    return Check("MLflow", found, "runs are published there")


def disk(root: Path, needed: int) -> Check:
    """Check the room for a study that needs so many bytes."""
    free = shutil.disk_usage(root).free
    means = f"a study from nothing needs about {size(needed)}"
    if free < needed:
        fix = "free some space (parashot clean --yes), or move the checkout"
        return Check("disk", f"{size(free)} free", means, "problem", fix)
    return Check("disk", f"{size(free)} free", means)
