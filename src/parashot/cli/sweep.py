"""`parashot sweep`: a grid of params, trained on the machines of a Ray cluster or on this one."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from parashot.cli import PARAMS, SWEEPS
from parashot.cli.shared import require_study, tell
from parashot.errors import DeviceError
from parashot.parsing import in_yaml, read_yaml
from parashot.plain import aligned
from parashot.recipes import load_recipe
from parashot.records import read_result
from parashot.sweep.cluster import Nodes
from parashot.sweep.grid import grid, read_choices
from parashot.sweep.run import Outcome, sweep
from parashot.train.records import Choices, resolve_auto


def run(command: argparse.Namespace) -> None:
    """Train every point of the grid, and print a row for each.

    What params leave to auto is, on every node, what stage `tune` found best on this machine, where it has
    run.
    """
    require_study()
    choices = read_choices(command.choices)
    recipe = load_recipe(command.recipe).settings if command.recipe else {}
    tree, measured = read_yaml(PARAMS), Path("results/choices.json")
    points, (base,) = grid(tree, choices, recipe), grid(tree, {}, recipe)
    if measured.exists():
        best = read_result(Choices, measured)
        points = [replace(each, params=resolve_auto(each.params, best)) for each in points]
    nodes = Nodes(command.address, command.cpus_per_run, command.gpus_per_run, command.retries)
    seed, packed = base.params.seed, Path("data/packed")
    outcomes = sweep(points, command.strategy, seed, packed, command.out, nodes, tell)
    if command.json:
        print(json.dumps({"runs": [_tree(each) for each in outcomes]}, indent=2))
    else:
        print(_table(outcomes, [key for key, values in choices.items() if len(values) > 1]), end="")
    published = "; `python -m stages.publish` brings them into MLflow" if command.out == SWEEPS else ""
    tell(f"results: {command.out}/RUN{published}")
    if failed := sum(each.status == "failed" for each in outcomes):
        raise DeviceError(f"{failed} of {len(outcomes)} runs failed; the same command tries them again")


def _table(outcomes: Sequence[Outcome], keys: Sequence[str]) -> str:
    """A row for each run: the knobs that differ, and what came of it."""
    rows = [[*keys, "val accuracy", "seconds", "run"]]
    for each in outcomes:
        found = ["failed", "", each.reason]
        if each.result:
            accuracy, ci95 = 100 * (each.result.val_accuracy or 0), 100 * (each.result.val_accuracy_ci95 or 0)
            found = [f"{accuracy:.1f} ± {ci95:.1f}%", f"{each.result.seconds or 0:.1f}", each.folder.name]
        rows.append([*(in_yaml(each.point.settings[key]) for key in keys), *found])
    return aligned(rows)


def _tree(outcome: Outcome) -> dict[str, object]:
    """The outcome with full precision; accuracies are shares of 1."""
    result = asdict(outcome.result) if outcome.result else {}
    return {
        "settings": dict(outcome.point.settings),
        "status": outcome.status,
        "reason": outcome.reason,
        "folder": outcome.folder.as_posix(),
        **{key: result.get(key) for key in ("val_accuracy", "val_accuracy_ci95", "seconds")},
    }
