"""Fixed costs before anything is computed: processes, modules, a study that has nothing to do."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import yaml

from benchmarks.checkout import ROOT, run_command, scratch_folder
from benchmarks.outcome import Outcome, Table, median_of
from benchmarks.probes import rounds
from benchmarks.turns import BLOCKS, interleaved, seconds_of
from benchmarks.workload import tree_of
from parashot.recipes import Value, apply

STATEMENTS = {
    "python -c pass": "pass",
    "import torch": "import torch",
    "import mlflow": "import mlflow",
    "import dvc.repo": "import dvc.repo",
    "modules of the stage hardware": "import stages.hardware",
    "modules of the stage train": "import stages.train",
    "modules of the stage summarize": "import stages.summarize",
    "modules of the stage publish": "import stages.publish",
    "load_params": "import pathlib, parashot.params as p; p.load_params(pathlib.Path('params.yaml'))",
}
"""Programs of one line, each run by `python -c` in the checkout."""

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
"""The smallest study: every stage does something, and as little as it can."""

_GRAPH = ("src", "stages", "mlruns", "dvc.yaml", "params.yaml", ".dvc", ".dvcignore", ".gitignore")
_IDENTITY = ("-c", "user.name=benchmark", "-c", "user.email=benchmark@localhost")
_SCRIPT = Path(sys.executable).with_name("parashot")


def run(quick: bool) -> Outcome:
    """Time every command in turn, from outside; `quick`: without the study that is done."""
    commands: dict[str, tuple[str, ...]] = {
        **{name: (sys.executable, "-c", program) for name, program in STATEMENTS.items()},
        **_help_commands(),
        "dvc --version": ("dvc", "--version"),
    }
    with scratch_folder() as folder:
        blocks = {name: partial(_seconds, *command) for name, command in commands.items()}
        if not quick:
            finished_study(folder)
            blocks["dvc repro, nothing changed"] = partial(_seconds, "dvc", "repro", at=folder)
        measured = interleaved(blocks, rounds(quick), int(not quick))
    rows = [(name, median_of(series)) for name, series in measured.items()]
    table = Table("Fixed costs: a command from its start to its end", ("command", "seconds"), rows)
    return Outcome("pipeline", [table], raw=measured, settings={"rounds": rounds(quick), "quick": quick})


def help_seconds() -> list[float]:
    """Seconds of `parashot --help`, each from start to end."""
    *_, command = _help_commands().values()
    return interleaved({"help": partial(_seconds, *command)}, BLOCKS)["help"]


def _help_commands() -> dict[str, tuple[str, ...]]:
    """The command line as a module, and its script where it is installed."""
    module = (sys.executable, "-m", "parashot.cli", "--help")
    commands: dict[str, tuple[str, ...]] = {"python -m parashot.cli --help": module}
    if _SCRIPT.exists():
        commands["parashot --help"] = (str(_SCRIPT), "--help")
    return commands


def _seconds(*command: str, at: Path = ROOT) -> float:
    return seconds_of(partial(run_command, *command, at=at), 1)


def finished_study(root: Path) -> None:
    """Make a git and DVC repository in `root`, with this checkout's code, and let DVC run the smallest study.

    Raises `DeviceError` where git or DVC fails, in particular outside of a git checkout.
    """
    listed = run_command("git", "ls-files", "--cached", "--others", "--exclude-standard", *_GRAPH)
    for name in listed.splitlines():
        if (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, root / name)
    params = root / "params.yaml"
    params.write_text(yaml.safe_dump(apply(tree_of(params), TINY), sort_keys=False), encoding="utf-8")
    run_command("git", "init", "--quiet", at=root)
    run_command("git", "add", "--all", at=root)
    run_command("git", *_IDENTITY, "commit", "--quiet", "--message", "the smallest study", at=root)
    run_command("dvc", "repro", at=root)
