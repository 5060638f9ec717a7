"""`parashot sweep`: a grid of params, trained on the machines of a Ray cluster or on this one."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from parashot.cli.arguments import Commands, at_least, tell
from parashot.errors import DeviceError

if TYPE_CHECKING:
    from parashot.sweep.grid import Point


def add_parser(commands: Commands) -> None:
    """Add `parashot sweep`."""
    parser = commands.add_parser(
        "sweep",
        help="train a grid of params on the machines of a Ray cluster, or on this one",
        description="Train every combination of the given values on the packed data of this checkout, each "
        "on an idle node of a Ray cluster. Runs that are there already are not repeated.",
    )
    parser.add_argument("-S", dest="choices", metavar="KEY=VALUE[,VALUE…]", action="append", default=[])
    parser.add_argument(
        "--recipe", metavar="NAME", help="a set of knobs to start from, instead of params.yaml"
    )
    parser.add_argument(
        "--strategy", metavar="NAME", default="serial", help="how each run is spread (serial)"
    )
    parser.add_argument("--address", metavar="HOST:PORT", help="a running Ray cluster; without, this machine")
    parser.add_argument(
        "--out", metavar="DIR", type=Path, default=Path("results/sweep"), help="(results/sweep)"
    )
    parser.add_argument("--cpus-per-run", metavar="N", type=at_least(1), default=1, help="(1)")
    parser.add_argument("--gpus-per-run", metavar="N", type=at_least(0), default=0, help="(0)")
    parser.add_argument(
        "--retries", metavar="N", type=at_least(0), default=3, help="how often a lost run is begun again (3)"
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.set_defaults(run=_run)


def _run(command: argparse.Namespace) -> None:
    from parashot.parsing import read_yaml
    from parashot.recipes import load_recipe
    from parashot.sweep.engine import Nodes
    from parashot.sweep.grid import grid, read_choices, varied
    from parashot.sweep.run import sweep
    from parashot.sweep.table import as_json, table

    choices = read_choices(command.choices)
    recipe = load_recipe(command.recipe).settings if command.recipe else {}
    points = [_settled(point) for point in grid(read_yaml(Path("params.yaml")), choices, recipe)]
    nodes = Nodes(command.address, command.cpus_per_run, command.gpus_per_run, command.retries)
    outcomes = sweep(points, command.strategy, Path("data/packed"), command.out, nodes, tell)
    print(as_json(outcomes) if command.json else table(outcomes, varied(choices)), end="")
    tell(f"results: {command.out}/RUN; `python -m stages.publish` brings them into MLflow")
    if failed := sum(each.status == "failed" for each in outcomes):
        raise DeviceError(f"{failed} of {len(outcomes)} runs failed; the same command tries them again")


def _settled(point: Point) -> Point:
    """The point computed, on every node, as stage `tune` found best on this machine where it has run."""
    from parashot.records import read_result
    from parashot.train.choices import settle
    from parashot.train.records import Choices

    measured = Path("results/choices.json")
    if not measured.exists():
        return point
    return replace(point, params=settle(point.params, read_result(Choices, measured)))
