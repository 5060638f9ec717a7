"""Real checkouts in temporary folders, and the smallest study there is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

from parashot.recipes import apply

ROOT = Path(__file__).parents[2]
TINY = (
    "data.synthetic.images_per_class=8",
    "data.synthetic.image_size=16",
    "model.image_size=16",
    "episode.k_query=2",
    "train.episodes=8",
    "train.batchsz=4",
    "train.validate_every=1",
    "train.val_episodes=4",
    "parallel.replicas=2",
    "parallel.bench.blocks=7",
    "parallel.bench.steps=1",
    "parallel.bench.warmup_steps=1",
    "loader.bench.workers=[0,2]",
    "loader.bench.batchsz=2",
    "loader.bench.batches=2",
    "batchsz_study.sizes=[2,4]",
    "batchsz_study.baseline=4",
    "batchsz_study.episodes=8",
    "batchsz_study.block_episodes=4",
    "evaluate.k_query=3",
    "evaluate.val_episodes=8",
    "evaluate.test_episodes=8",
    "claims.resamples=200",
)


@dataclass(frozen=True)
class Checkout:
    """A git and DVC repository that is a copy of this one."""

    root: Path

    def run(self, *command: str, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command in it, with this interpreter's scripts first on the path."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("DVC_", "MLFLOW_"))}
        done = subprocess.run(
            command,
            cwd=self.root,
            env={**clean, "PATH": path, "DVC_NO_ANALYTICS": "1", **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=800,
        )
        assert not check or done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done

    @property
    def log(self) -> Path:
        """What its first `dvc repro` said."""
        return self.root.with_name(f"{self.root.name}.log")

    def read(self, name: str) -> str:
        return (self.root / name).read_text(encoding="utf-8")


def make_checkout(root: Path, *settings: str) -> Checkout:
    """Copy what git tracks (and would track) of this project, set params, and commit."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    for name in listed:
        if (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, root / name)
    (root / "dvc.lock").unlink(missing_ok=True)
    apply_settings(root / "params.yaml", settings)
    checkout = Checkout(root)
    checkout.run("git", "init", "--quiet", "--initial-branch=main")
    checkout.run("git", "config", "user.name", "tester")
    checkout.run("git", "config", "user.email", "tester@localhost")
    checkout.run("git", "add", "--all")
    checkout.run("git", "commit", "--quiet", "-m", "a copy")
    return checkout


def apply_settings(path: Path, settings: tuple[str, ...]) -> None:
    """Set `key=value` pairs in a params.yaml."""
    pairs = (each.split("=", 1) for each in settings)
    values = {key: yaml.safe_load(value) for key, value in pairs}
    tree = apply(yaml.safe_load(path.read_text(encoding="utf-8")), values)
    path.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
