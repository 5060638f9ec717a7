"""The command `parashot`: the options of every command; its own module is imported when it runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module, metadata
from pathlib import Path

from parashot.command import guarded
from parashot.lifetime import end_in_order
from parashot.plain import did_you_mean

PARAMS, PIPELINE, REPORT = Path("params.yaml"), Path("dvc.yaml"), Path("parashot-report")
TRAINING = "training"
"""Section of the user's own params.yaml: the way to train, for his code to follow."""

REMOVED = {"checkpoints": [".scratch"], "mlflow": ["mlflow.db*", "mlruns/*"]}
"""Patterns of what each kind of `parashot clean` removes."""

SWEEPS = Path("results/sweep")
"""Where the study's own stage `publish` looks for runs of `parashot sweep`."""

LARGEST = 2**31 - 1
"""Of whole numbers, as of `seed` in params.yaml."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (this process's where None is given) and return its exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    whole = parser()
    if words and not words[0].startswith("-") and words[0] not in COMMANDS:
        whole.error(f"there is no command {words[0]}; {did_you_mean(words[0], COMMANDS)}".rstrip("; "))
    command = whole.parse_args(words)
    end_in_order()
    return guarded(lambda: import_module(f"parashot.cli.{command.command}").run(command))


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    whole = argparse.ArgumentParser(
        prog="parashot",
        description="Measure how to parallelise a training on this machine: your own, or the study.",
        epilog="\n\n".join(map(_group, GROUPS)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    try:
        version = metadata.version("parashot")
    except metadata.PackageNotFoundError:
        version = "(not installed)"
    whole.add_argument("--version", action="version", version=f"parashot {version}")
    commands = whole.add_subparsers(metavar="COMMAND", required=True)
    for name, (_, description, add_options) in COMMANDS.items():
        each = commands.add_parser(name, description=description)
        add_options(each)
        each.set_defaults(command=name)
    return whole


def _group(title: str) -> str:
    """The commands of a group, a line each, for `--help`."""
    return "\n".join([f"{title}:", *(f"  {name:<10}{COMMANDS[name][0]}" for name in GROUPS[title])])


# --- types of arguments -------------------------------------------------------------------------------


def between(low: float, high: float, kind: Callable[[str], float] = int) -> Callable[[str], float]:
    """Return a type of argument: a number of a kind, from `low` to `high`."""

    def number(text: str) -> float:
        value = kind(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text} is not between {low} and {high}")
        return value

    return number


def at_least(low: int) -> Callable[[str], float]:
    """Return a type of argument: a whole number from `low` to `LARGEST`."""
    return between(low, LARGEST)


# --- options ------------------------------------------------------------------------------------------


def _counts(parser: argparse.ArgumentParser, *counts: tuple[str, int, int, str]) -> None:
    """Add options that take a whole number: name, least value, default and meaning of each."""
    for name, low, value, what in counts:
        kind, said = at_least(low), f"{what} ({value})"
        parser.add_argument(f"--{name}", metavar="N", type=kind, default=value, help=said)


def _json(parser: argparse.ArgumentParser, how: str = "") -> None:
    parser.add_argument("--json", action="store_true", help=f"print JSON{how}")


def _weights(parser: argparse.ArgumentParser) -> None:
    said = (
        "model.safetensors of a training; default: the one that stage evaluate chose in this folder, if it "
        "was trained on photographs, else the network that comes with parashot"
    )
    parser.add_argument("--weights", metavar="FILE", type=Path, help=said)


def _recipe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="recipe to print; default: list all")
    _json(parser)


def _summary(parser: argparse.ArgumentParser) -> None:
    form = parser.add_mutually_exclusive_group()
    folder = "write a folder instead: README.md, the report, figures"
    form.add_argument("--to", metavar="DIR", type=Path, help=folder)
    form.add_argument("--json", action="store_true", help="print JSON, as in results/summary.json")
    parser.add_argument("--title", default="The study", help="heading of the page (The study)")


def _advise(parser: argparse.ArgumentParser) -> None:
    _json(parser)
    said = f"write the advised settings into FILE ({PARAMS})"
    parser.add_argument("--apply", metavar="FILE", nargs="?", type=Path, const=PARAMS, help=said)


def _measure(parser: argparse.ArgumentParser) -> None:
    said = "a Python file; FILE:NAME is a class or an object in it"
    parser.add_argument("file", metavar="FILE[:NAME]", type=Path, help=said)
    minutes = between(1, 24 * 60, float)
    parser.add_argument("--budget", metavar="MINUTES", type=minutes, default=10.0, help="time to spend (10)")
    said = "exit with 1 where what is recommended is not X times as fast as the default"
    parser.add_argument("--fail-below", metavar="X", type=float, help=said)
    _json(parser)


def _init(parser: argparse.ArgumentParser) -> None:
    said = "a Python file, as for `parashot measure`"
    parser.add_argument("file", metavar="FILE[:NAME]", type=Path, help=said)


def _predict(parser: argparse.ArgumentParser) -> None:
    gpus = "1,2,4,8,64"
    parser.add_argument("--gpus", metavar="N,N,…", default=gpus, help=f"numbers of devices ({gpus})")
    link = "link between nodes: here, a name such as infiniband-hdr, or GB/s,latency in µs (here)"
    parser.add_argument("--link", metavar="LINK", default="here", help=link)
    parser.add_argument("--within", metavar="LINK", help="link within a node; default: as measured here")
    per_node, batchsz = "devices of a node; default: as here", "episodes per step; default: the study's"
    parser.add_argument("--per-node", metavar="N", type=at_least(1), help=per_node)
    parser.add_argument("--batchsz", metavar="N", type=at_least(1), help=batchsz)
    _json(parser, " in full precision")


def _sweep(parser: argparse.ArgumentParser) -> None:
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
    said = f"folder of results ({SWEEPS})"
    parser.add_argument("--out", metavar="DIR", type=Path, default=SWEEPS, help=said)
    _counts(
        parser,
        ("cpus-per-run", 1, 1, "hardware threads of each run"),
        ("gpus-per-run", 0, 0, "GPUs of each run"),
        ("retries", 0, 3, "restarts of a run whose process or node is lost"),
    )
    _json(parser)


def _evaluate(parser: argparse.ArgumentParser) -> None:
    data = "a copy of miniImageNet, or a study's data/packed"
    parser.add_argument("--data", metavar="PATH", type=Path, required=True, help=data)
    _weights(parser)
    split = "split that the classes are from (test)"
    parser.add_argument("--split", choices=("test", "val"), default="test", help=split)
    _counts(
        parser,
        ("n-way", 2, 5, "classes per episode"),
        ("k-shot", 1, 1, "examples per class"),
        ("k-query", 1, 15, "queries per class"),
        ("episodes", 2, 10_000, "episodes"),
        ("transductive", 0, 0, "number of these also measured with batch norm by their own images"),
        ("seed", 0, 0, "seed of the episodes"),
    )
    _json(parser, " in full precision")


def _classify(parser: argparse.ArgumentParser) -> None:
    shots, images = "examples: a folder per class with one or more images", "pictures, or folders of them"
    parser.add_argument("--shots", metavar="DIR", type=Path, required=True, help=shots)
    parser.add_argument("--images", metavar="PATH", type=Path, nargs="+", required=True, help=images)
    _weights(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON in full precision")
    form.add_argument("--csv", action="store_true", help="print CSV in full precision")
    parser.add_argument("--html", metavar="FILE", type=Path, help="also write a page with thumbnails")
    said = "answer 'none of these' where the highest score is below P (0)"
    parser.add_argument("--reject", metavar="P", type=between(0, 1, float), default=0.0, help=said)


def _clean(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"{' or '.join(REMOVED)} (checkpoints)")
    parser.add_argument("--yes", action="store_true", help="remove them; without it they are only listed")
    _json(parser)


COMMANDS: Mapping[str, tuple[str, str, Callable[[argparse.ArgumentParser], None]]] = {
    "doctor": (
        "check this machine and this checkout",
        "Check cores, memory, GPUs, PyTorch, DVC, git, MLflow and the disk. Exit status 1 if something would "
        "stop a study.",
        _json,
    ),
    "recipe": (
        "print a named set of knobs for dvc exp run, or list the sets",
        "Print a recipe, a named set of knobs, for use in dvc exp run $(parashot recipe NAME).",
        _recipe,
    ),
    "summary": (
        "print the tables of the study",
        "Print the tables of the study in this folder as Markdown, or write them to a folder together with "
        "the report and its figures.",
        _summary,
    ),
    "advise": (
        "recommend strategy, loader, batch size and precision for this machine",
        "Recommend a strategy, loader, batch size and precision from the measurements of the study in this "
        "folder, with the gain and the certainty of each; or the way to train that `parashot measure` found "
        "here.",
        _advise,
    ),
    "measure": (
        "find the fastest way to train your own network",
        "Measure strategies, loader workers and precisions on the training that FILE describes and recommend "
        f"the fastest; every timed block is written to {REPORT}/. FILE has functions network(), dataset(), "
        "loss(network, batch) and optimizer(parameters), and a number batchsz.",
        _measure,
    ),
    "init": (
        "add a stage that measures your training to your own DVC project",
        f"Add a stage `measure` to {PIPELINE} of the DVC project in this folder, which runs `parashot "
        f"measure FILE`, and to {PARAMS} its budget and a section `{TRAINING}`, which `parashot advise "
        "--apply` sets. What else both files say stays, comments included.",
        _init,
    ),
    "predict": (
        "predict the time of a DDP step on more devices",
        "Predict seconds, speedup and efficiency of DDP's step on more devices like those that the study in "
        "this folder measured, with intervals. The model: docs/predict.md.",
        _predict,
    ),
    "sweep": (
        "train a grid of params on this machine or on a Ray cluster",
        "Train every combination of the given values on the packed data of this checkout, on this machine or "
        "on the nodes of a Ray cluster. Runs that have a result are not repeated.",
        _sweep,
    ),
    "evaluate": (
        "measure a network's few-shot accuracy on unseen classes",
        "Measure a network's accuracy on episodes of unseen classes, in eval mode, with 95% intervals, and "
        "the margin of its relation head over the cosine of the same embedding.",
        _evaluate,
    ),
    "classify": (
        "classify your own pictures by a few examples of each class",
        "Classify pictures by examples. The classes need not be those of the training.",
        _classify,
    ),
    "clean": (
        "remove saved states of unfinished trainings, or MLflow's runs",
        "Remove checkpoints (unfinished trainings then start from the beginning) or, by `clean mlflow`, all "
        "of MLflow's runs here (`dvc repro` publishes those in results/ again, and no earlier ones). `dvc gc "
        "--all-commits --all-experiments` shrinks DVC's cache.",
        _clean,
    ),
}
"""Help, description and options of each command."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "your own training": ("measure", "init", "advise"),
    "the study": ("doctor", "recipe", "advise", "summary", "predict", "sweep", "clean"),
    "few-shot learning": ("classify", "evaluate"),
}
"""Commands as `--help` lists them."""
