"""A repository in which the smallest study there is has just been done."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from benchmarks.scratch import ROOT
from parashot.errors import DeviceError, one_line
from parashot.parsing import read_yaml
from parashot.recipes import Value, apply

TINY: Mapping[str, Value] = {
    "data.synthetic.images_per_class": 8,
    "data.synthetic.image_size": 16,
    "model.image_size": 16,
    "episode.k_query": 2,
    "train.episodes": 8,
    "train.batchsz": 4,
    "train.validate_every": 1,
    "train.val_episodes": 4,
    "parallel.replicas": 2,
    "parallel.bench.steps": 1,
    "parallel.bench.warmup_steps": 1,
    "loader.bench.workers": [0, 2],
    "loader.bench.batchsz": 2,
    "loader.bench.batches": 2,
    "batchsz_study.sizes": [2, 4],
    "batchsz_study.baseline": 4,
    "batchsz_study.episodes": 8,
    "batchsz_study.block_episodes": 4,
    "evaluate.k_query": 3,
    "evaluate.val_episodes": 8,
    "evaluate.test_episodes": 8,
    "claims.resamples": 200,
}
"""Every stage does something, and as little as it can."""

_GRAPH = ("src", "stages", "mlruns", "dvc.yaml", "params.yaml", ".dvc", ".dvcignore", ".gitignore")
_IDENTITY = ("-c", "user.name=benchmark", "-c", "user.email=benchmark@localhost")


def finished_study(root: Path) -> None:
    """Make a git and DVC repository in `root`, with this checkout's code, and let DVC run the study.

    Raises `DeviceError` where git or DVC fails, in particular outside of a git checkout.
    """
    for name in run("git", "ls-files", "--cached", "--others", "--exclude-standard", *_GRAPH).splitlines():
        if (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, root / name)
    params = root / "params.yaml"
    params.write_text(yaml.safe_dump(apply(_tree(params), TINY), sort_keys=False), encoding="utf-8")
    run("git", "init", "--quiet", at=root)
    run("git", "add", "--all", at=root)
    run("git", *_IDENTITY, "commit", "--quiet", "--message", "the smallest study", at=root)
    run("dvc", "repro", at=root)


def run(*command: str, at: Path = ROOT) -> str:
    """What a command printed; this interpreter's scripts come first. Raises `DeviceError` where it fails."""
    try:
        done = subprocess.run(command, cwd=at, env=environment(), capture_output=True, text=True, check=True)
    except OSError as error:
        raise DeviceError(f"{command[0]} cannot be started: {one_line(error)}") from error
    except subprocess.CalledProcessError as error:
        raise DeviceError(
            f"{_said(command)} ended with {error.returncode}: {_reason(error.stderr)}"
        ) from error
    return done.stdout


def environment() -> Mapping[str, str]:
    """This process's variables, for the checkout's own code, without what steers DVC or MLflow."""
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("DVC_", "MLFLOW_", "GIT_"))
    }
    scripts, sources = str(Path(sys.executable).parent), str(ROOT / "src")
    kept["PATH"] = os.pathsep.join([scripts, kept.get("PATH", os.defpath)])
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, [sources, kept.get("PYTHONPATH", "")]))
    return kept | {"DVC_NO_ANALYTICS": "1"}


def _tree(params: Path) -> Mapping[str, object]:
    tree = read_yaml(params)
    assert isinstance(tree, dict)  # this checkout's own
    return tree


def _said(command: Sequence[str]) -> str:
    return " ".join([Path(command[0]).name, *command[1:]])


def _reason(words: str) -> str:
    """The line that says why: the stage's own where a stage has failed, else the last one."""
    lines = words.strip().splitlines()
    own = [line for line in lines if line.startswith("error: ")]
    return next(iter([*own, *reversed(lines)]), "it said nothing")
