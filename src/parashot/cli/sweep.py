"""`parashot sweep`: a grid of params, trained on the machines of a Ray cluster or on this one."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from parashot.cli.arguments import Commands, add_counts, tell
from parashot.errors import DeviceError

if TYPE_CHECKING:
    from parashot.sweep.grid import Point
    from parashot.sweep.run import Outcome


def add_parser(commands: Commands) -> None:
    """Add `parashot sweep`."""
    parser = commands.add_parser(
        "sweep",
        help="train a grid of params on this machine or on a Ray cluster",
        description="Train every combination of the given values on the packed data of this checkout, on "
        "this machine or on the nodes of a Ray cluster. Runs that have a result are not repeated.",
    )
    parser.add_argument(
        "-S",
        dest="choices",
        metavar="KEY=VALUE[,VALUE…]",
        action="append",
        default=[],
        help="a knob and its values, written as for `dvc exp run -S`; may be repeated",
    )
    parser.add_argument("--recipe", metavar="NAME", help="recipe whose knobs replace those of params.yaml")
    parser.add_argument("--strategy", metavar="NAME", default="serial", help="strategy of every run (serial)")
    parser.add_argument("--address", metavar="HOST:PORT", help="a running Ray cluster; default: this machine")
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        default=Path("results/sweep"),
        help="folder of results (results/sweep)",
    )
    counts = (
        ("cpus-per-run", 1, 1, "hardware threads of each run"),
        ("gpus-per-run", 0, 0, "GPUs of each run"),
        ("retries", 0, 3, "restarts of a run whose process or node is lost"),
    )
    add_counts(parser, counts)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_run)


def _run(command: argparse.Namespace) -> None:
    from parashot.parsing import read_yaml
    from parashot.recipes import load_recipe
    from parashot.sweep.cluster import Nodes
    from parashot.sweep.grid import grid, read_choices
    from parashot.sweep.run import sweep

    choices = read_choices(command.choices)
    recipe = load_recipe(command.recipe).settings if command.recipe else {}
    tree = read_yaml(Path("params.yaml"))
    points = [_resolved(point) for point in grid(tree, choices, recipe)]
    (base,) = grid(tree, {}, recipe)
    nodes = Nodes(command.address, command.cpus_per_run, command.gpus_per_run, command.retries)
    seed, packed = base.params.seed, Path("data/packed")
    outcomes = sweep(points, command.strategy, seed, packed, command.out, nodes, tell)
    if command.json:
        trees = [_tree(each) for each in outcomes]
        print(json.dumps({"runs": trees}, indent=2))
    else:
        print(_table(outcomes, [key for key, values in choices.items() if len(values) > 1]), end="")
    tell(f"results: {command.out}/RUN; `python -m stages.publish` brings them into MLflow")
    if failed := sum(each.status == "failed" for each in outcomes):
        raise DeviceError(f"{failed} of {len(outcomes)} runs failed; the same command tries them again")


def _resolved(point: Point) -> Point:
    """The point computed, on every node, as stage `tune` found best on this machine where it has run."""
    from parashot.records import read_result
    from parashot.train.choices import resolve_auto
    from parashot.train.records import Choices

    measured = Path("results/choices.json")
    if not measured.exists():
        return point
    return replace(point, params=resolve_auto(point.params, read_result(Choices, measured)))


def _table(outcomes: Sequence[Outcome], keys: Sequence[str]) -> str:
    """A row for each run: the knobs that differ, and what came of it."""
    from parashot.plain import aligned
    from parashot.sweep.grid import shown

    rows = [[*keys, "val accuracy", "seconds", "run"]]
    for each in outcomes:
        found = ["failed", "", each.reason]
        if each.result:
            accuracy, ci95 = 100 * (each.result.val_accuracy or 0), 100 * (each.result.val_accuracy_ci95 or 0)
            found = [f"{accuracy:.1f} ± {ci95:.1f}%", f"{each.result.seconds or 0:.1f}", each.folder.name]
        rows.append([*(shown(each.point.settings[key]) for key in keys), *found])
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
