"""The command `parashot`."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from parashot.command import guarded
from parashot.errors import DeviceError, ParamsError, RecordError, UsageError

if TYPE_CHECKING:
    from parashot.sweep.grid import Point


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (this process's where None is given) and return its exit status."""
    command = _parser().parse_args(arguments)
    return guarded(lambda: command.run(command))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="parashot",
        description="How should this few-shot training be parallelised? Measured, on your machine.",
    )
    parser.add_argument("--version", action="version", version=f"parashot {_version()}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    recipe = commands.add_parser(
        "recipe",
        help="print a whole set of knobs for dvc exp run, or list the sets",
        description="Print a recipe as arguments for dvc exp run $(parashot recipe NAME), or list all.",
    )
    recipe.add_argument("name", nargs="?", metavar="NAME", help="the recipe to print")
    recipe.set_defaults(run=_recipe)
    summary = commands.add_parser(
        "summary",
        help="print the tables of the last study",
        description="Print the tables of results/summary.json as Markdown, "
        "or write them with the figures to a folder.",
    )
    summary.add_argument("--to", metavar="DIR", type=Path, help="write DIR/README.md and its figures instead")
    summary.add_argument("--title", default="The study", help="heading of the page")
    summary.set_defaults(run=_summary)
    predict = commands.add_parser(
        "predict",
        help="predict the time of a step on devices that are not here",
        description="Predict DDP's step on more devices such as the study in this folder measured: seconds, "
        "speedup and efficiency, with intervals. The model: docs/predict.md.",
    )
    predict.add_argument("--gpus", metavar="N,N,…", default="1,2,4,8,64", help="numbers of devices")
    link = "between nodes: here, a name such as infiniband-hdr, or GB/s,latency in µs; by default here"
    predict.add_argument("--link", metavar="LINK", default="here", help=link)
    predict.add_argument("--within", metavar="LINK", help="within a node; by default what was measured here")
    predict.add_argument("--per-node", metavar="N", type=int, help="devices of a node; by default as here")
    predict.add_argument("--batchsz", metavar="N", type=int, help="episodes per step; by default the study's")
    predict.add_argument("--json", action="store_true", help="print every digit as JSON")
    predict.set_defaults(run=_predict)
    _add_sweep(commands)
    return parser


def _add_sweep(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    sweep = commands.add_parser(
        "sweep",
        help="train a grid of params on the machines of a Ray cluster, or on this one",
        description="Train every combination of the given values on the packed data of this checkout, each "
        "on an idle node of a Ray cluster. Runs that are there already are not repeated.",
    )
    sweep.add_argument("-S", dest="choices", metavar="KEY=VALUE[,VALUE…]", action="append", default=[])
    sweep.add_argument(
        "--recipe", metavar="NAME", help="a set of knobs to start from, instead of params.yaml"
    )
    sweep.add_argument("--strategy", metavar="NAME", default="serial", help="how each run is spread (serial)")
    sweep.add_argument("--address", metavar="HOST:PORT", help="a running Ray cluster; without, this machine")
    sweep.add_argument(
        "--out", metavar="DIR", type=Path, default=Path("results/sweep"), help="(results/sweep)"
    )
    sweep.add_argument("--cpus-per-run", metavar="N", type=_at_least(1), default=1, help="(1)")
    sweep.add_argument("--gpus-per-run", metavar="N", type=_at_least(0), default=0, help="(0)")
    sweep.add_argument(
        "--retries", metavar="N", type=_at_least(0), default=3, help="how often a lost run is begun again (3)"
    )
    sweep.add_argument("--json", action="store_true", help="print the results as JSON")
    sweep.set_defaults(run=_sweep)


def _at_least(low: int) -> Callable[[str], int]:
    def whole_number(text: str) -> int:
        if int(text) < low:
            raise argparse.ArgumentTypeError(f"{text} is below {low}")
        return int(text)

    return whole_number


def _version() -> str:
    try:
        return metadata.version("parashot")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _recipe(command: argparse.Namespace) -> None:
    from parashot import recipes

    if command.name is None:
        known = [recipes.load_recipe(name) for name in recipes.recipe_names()]
        width = max(len(each.name) for each in known)
        for each in known:
            print(f"{each.name:<{width}}  {each.description} ({each.hardware})")
        return
    try:
        print(" ".join(recipes.arguments(recipes.load_recipe(command.name))))
    except ParamsError:
        if not sys.stdout.isatty():
            # `dvc exp run $(parashot recipe TYPO)` would otherwise run with no argument at all.
            print("--no-such-recipe")
        raise


def _summary(command: argparse.Namespace) -> None:
    from parashot.files import replacing_folder
    from parashot.records import read_json
    from parashot.report.markdown import markdown

    summary = read_json(Path("results/summary.json"))
    if command.to is None:
        print(markdown(summary, command.title), end="")
        return
    figures = sorted(
        Path("reports/figures").glob("*.png"), key=lambda path: (path.stem != "overview", path.name)
    )
    with replacing_folder(command.to) as folder:
        for figure in figures:
            shutil.copyfile(figure, folder / figure.name)
        page = markdown(summary, command.title, [figure.name for figure in figures])
        (folder / "README.md").write_text(page, encoding="utf-8")
        shutil.copyfile("params.yaml", folder / "params.yaml")


def _predict(command: argparse.Namespace) -> None:
    from parashot.findings.results import load_results
    from parashot.findings.scaling import Predictor, checked_rows, parse_devices
    from parashot.findings.statistics import Resampling
    from parashot.findings.summary import flat
    from parashot.report.markdown import as_markdown
    from parashot.report.tables import checked_table, scaling_table

    devices = parse_devices(command.gpus)
    for name, value in (("per-node", command.per_node), ("batchsz", command.batchsz)):
        if value is not None and value < 1:
            raise UsageError(f"--{name} {value}: at least 1 is needed")
    results = load_results(Path(), (), partial=True)
    if results.strategies is None:
        raise RecordError(results.missing["strategies"])
    predictor = Predictor.of(results.strategies, Resampling())
    predicted = predictor.rows(command.link, devices, command.per_node, command.within, command.batchsz)
    rows = [flat(row) for row in predicted]
    checked = [flat(row) for row in checked_rows(predictor, results.strategies)]
    if command.json:
        print(json.dumps({"rows": rows, "checked": checked}, indent=2, allow_nan=False))
        return
    tables = [table for table in (scaling_table(rows), checked_table(checked)) if table.rows]
    print("\n\n".join(f"{table.caption}.\n\n{as_markdown(table)}" for table in tables))


def _sweep(command: argparse.Namespace) -> None:
    from parashot.params import read_yaml
    from parashot.recipes import load_recipe
    from parashot.sweep.engine import Nodes
    from parashot.sweep.grid import grid, read_choices, varied
    from parashot.sweep.run import sweep
    from parashot.sweep.table import as_json, table

    choices = read_choices(command.choices)
    recipe = load_recipe(command.recipe).settings if command.recipe else {}
    points = [_settled(point) for point in grid(read_yaml(Path("params.yaml")), choices, recipe)]
    nodes = Nodes(command.address, command.cpus_per_run, command.gpus_per_run, command.retries)
    outcomes = sweep(points, command.strategy, Path("data/packed"), command.out, nodes, _tell)
    print(as_json(outcomes) if command.json else table(outcomes, varied(choices)), end="")
    _tell(f"results: {command.out}/RUN; `python -m stages.publish` brings them into MLflow")
    if failed := sum(each.status == "failed" for each in outcomes):
        raise DeviceError(f"{failed} of {len(outcomes)} runs failed; the same command tries them again")


def _settled(point: Point) -> Point:
    """The point computed, on every node, as stage `tune` found best on this machine where it has run."""
    from parashot.records import Choices, read_result
    from parashot.train.choices import settle

    measured = Path("results/choices.json")
    if not measured.exists():
        return point
    return replace(point, params=settle(point.params, read_result(Choices, measured)))


def _tell(line: str) -> None:
    """Progress, beside what the command prints."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
