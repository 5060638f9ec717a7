"""`python tools/results.py`: tables and picture of docs/results.md, from the trainings in docs/results.

`--add RECIPE` first takes in the training of this checkout, as docs/results/RECIPE-SEED.json; `--ship` also
makes its network the one that comes with parashot, and fills in the model card.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import yaml
from matplotlib.figure import Figure

from parashot.cli.shared import SHIPPED
from parashot.command import guarded
from parashot.errors import RecordError
from parashot.files import write_text
from parashot.knobs import apply, flatten
from parashot.model.weights import load_network, save_weights
from parashot.parallel.registry import STRATEGIES
from parashot.params import Params, load_params
from parashot.parsing import in_yaml, parse, read_yaml
from parashot.questions.results import StudyResults, load_results
from parashot.questions.statistics import repeated_interval
from parashot.questions.text import number
from parashot.recipes import load_recipe
from parashot.records import read_runs
from parashot.train.records import TaskAccuracy

ROOT = Path(__file__).resolve().parents[1]
PAGE, TRAININGS = ROOT / "docs/results.md", ROOT / "docs/results"
PICTURE = ROOT / "docs/pictures/results.png"
CODE = ("src", "stages", "dvc.yaml")
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"

Training = dict[str, Any]
"""Contents of a JSON file of docs/results."""


def main() -> None:
    """Take in a training where one is named; write page, picture and card."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--add", metavar="RECIPE", help="take in the training of this checkout")
    parser.add_argument("--ship", action="store_true", help="and let parashot come with its network")
    words = parser.parse_args()
    if words.ship and not words.add:
        parser.error("--ship goes with --add RECIPE")
    if words.add:
        _add(words.add, ship=words.ship)
    found = trainings()
    write_text(PAGE, filled(PAGE.read_text(encoding="utf-8"), page_figures(found)))
    _curves(found).savefig(PICTURE, dpi=150)


def trainings() -> list[Training]:
    """Return every training that was taken in, by recipe, variant and seed."""
    read = [json.loads(path.read_text(encoding="utf-8")) for path in TRAININGS.glob("*.json")]
    return sorted(read, key=lambda each: (*_group(each), each["seed"]))


def filled(page: str, figures: str, begin: str = BEGIN, end: str = END) -> str:
    """Return the page with `figures` between two marks."""
    before, rest = page.split(begin)
    return f"{before}{begin}\n{figures}\n{end}{rest.split(end)[1]}"


# --- taking a training in -------------------------------------------------------------------------


def _add(recipe: str, *, ship: bool) -> None:
    if changed := _git("status", "--porcelain", "--", *CODE):
        raise SystemExit(f"error: a commit must name the code that trained; commit first:\n{changed}")
    results = load_results(ROOT, tuple(STRATEGIES), partial=True)
    training = _training(recipe, results)
    write_text(TRAININGS / f"{recipe}-{training['seed']}.json", json.dumps(training, indent=2) + "\n")
    if ship:
        card = SHIPPED.with_suffix(".md")
        figures = filled(card.read_text(encoding="utf-8"), card_figures(training, trainings()))
        folder = ROOT / "results/train" / training["training"]["strategy"]
        network = load_network(next(folder.glob("model.*")))
        save_weights(SHIPPED, load_params(ROOT / "params.yaml").model, network.state_dict())
        write_text(card, figures)


def _training(recipe: str, results: StudyResults) -> Training:
    """Settings of this checkout's training, its time, and the accuracy of its network."""
    if results.evaluate is None or results.hardware is None or results.pretraining is None:
        raise RecordError("no evaluated training in this checkout; run the recipe with `dvc exp run` first")
    params, evaluation = load_params(ROOT / "params.yaml"), results.evaluate
    strategy = evaluation.result.strategy
    trained, before = results.training[strategy], results.pretraining
    begun = before.history[-1].seconds if before.history else 0.0  # when the first episode came
    run = read_runs(ROOT / "results/train" / strategy / "records.jsonl")[0]
    return {
        "recipe": recipe,
        "seed": params.seed,
        "differs": _differences(recipe),
        "commit": run.tags["git.commit"],
        "date": datetime.fromtimestamp(run.start_ms / 1000, UTC).date().isoformat(),
        "hardware": asdict(results.hardware),
        "computed": asdict(results.tune.choices) if results.tune else {},
        "pretraining": asdict(before.result),
        "training": asdict(trained.result),
        "time": {
            "pretraining_seconds": before.result.seconds,
            "training_seconds": trained.result.seconds,
            "val_accuracy": trained.result.val_accuracy,
            "val_accuracy_ci95": trained.result.val_accuracy_ci95,
        },
        "tasks": [asdict(each) for each in evaluation.tasks],
        "pretraining_validations": [
            (row.seconds, row.val_accuracy) for row in before.history if row.val_accuracy is not None
        ],
        "validations": [
            (begun + row.seconds, row.val_accuracy) for row in trained.history if row.val_accuracy is not None
        ],
    }


def _differences(recipe: str) -> dict[str, str]:
    """Settings besides the recipe's, by dotted key, without the place of the images."""
    default = yaml.safe_load(_git("show", "HEAD:params.yaml"))
    trees: tuple[Any, Any] = (apply(default, load_recipe(recipe).settings), read_yaml(ROOT / "params.yaml"))
    expected, found = (flatten(parse(Params, tree)) for tree in trees)
    return {key: each for key, each in found.items() if key != "data.archive" and expected[key] != each}


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


# --- tables ---------------------------------------------------------------------------------------


def page_figures(found: Sequence[Training]) -> str:
    """Return all tables of the page; a variant with several seeds has only their mean."""
    alone = [
        each for group, alike in _groups(found).items() for each in alike if not group[1] or len(alike) < 2
    ]
    return "\n\n".join([_accuracies(alone), *_over_seeds(found), *_circumstances(found)])


def card_figures(training: Training, found: Sequence[Training]) -> str:
    """Return the tables of the model card of a training of `found`, with its machine and commit."""
    words = f"Trained on {_machine(training)}, commit {_commits(training)}, {training['date']}"
    alike = _groups(found)[_group(training)]
    return "\n\n".join([_accuracies([training]), *_over_seeds(alike), f"*{words}.*"])


def _accuracies(found: Sequence[Training]) -> str:
    """Accuracy and margin for each number of shots, which is the same in all trainings."""
    shots = [f"{each.k_shot}-shot" for each in _tasks(found[0])]
    head = ["recipe, seed", *shots, *(f"margin, {each}" for each in shots), "val, 1-shot", "minutes"]
    rows = []
    for training in found:
        tasks, time = _tasks(training), training["time"]
        rows.append(
            [
                _name(training),
                *(f"**{_accuracy(each.accuracy, each.accuracy_ci95)}**" for each in tasks),
                *(f"{100 * each.margin:+.2f} ± {100 * each.margin_ci95:.2f}" for each in tasks),
                _accuracy(time["val_accuracy"], time["val_accuracy_ci95"]),
                _minutes(_together(training)),
            ]
        )
    return table(head, ["---", *["---:"] * (len(head) - 1)], rows)


def _over_seeds(found: Sequence[Training]) -> list[str]:
    """Return a table of the recipes of which there are several seeds, in a list; an empty one if of none."""
    shots = [f"{each.k_shot}-shot" for each in _tasks(found[0])]
    head = ["mean of", "seeds", *(f"{each} (sd)" for each in shots), *(f"margin, {each}" for each in shots)]
    rows = []
    for group, alike in _groups(found).items():
        if len(alike) < 2:
            continue
        tasks = list(zip(*map(_tasks, alike), strict=True))
        accuracies = [[100 * each.accuracy for each in same] for same in tasks]
        rows.append(
            [
                _title(group),
                ", ".join(str(each["seed"]) for each in alike),
                *(f"**{fmean(each):.2f}** ({stdev(each):.2f})" for each in accuracies),
                *(_mean_margin([100 * each.margin for each in same]) for same in tasks),
            ]
        )
    return [table(head, ["---", "---", *["---:"] * (len(head) - 2)], rows)] if rows else []


def _mean_margin(margins: Sequence[float]) -> str:
    """Mean with its 95% interval over trainings, if there are at least three."""
    said = f"{fmean(margins):+.2f}"
    if len(margins) > 2:
        margin = repeated_interval(margins, confidence=0.95)
        said += f" ({margin.low:+.2f} to {margin.high:+.2f})"
    return said


def _tasks(training: Training) -> list[TaskAccuracy]:
    """Accuracies of a training's network, a row for each number of shots."""
    return [TaskAccuracy(**each) for each in training["tasks"]]


def _group(training: Training) -> tuple[str, str]:
    """Recipe and variant: trainings that are alike but for their seeds."""
    return training["recipe"], training.get("variant", "")


def _title(group: tuple[str, str]) -> str:
    return ", ".join(filter(None, group))


def _groups(found: Sequence[Training]) -> dict[tuple[str, str], list[Training]]:
    """Trainings that are alike but for their seeds; `found` is in the order of `trainings`."""
    return {group: [*alike] for group, alike in groupby(found, _group)}


def _circumstances(found: Sequence[Training]) -> list[str]:
    """Return a table of settings and machines, one row for all seeds, and the list of machines."""
    letters = {each: chr(ord("A") + i) for i, each in enumerate(dict.fromkeys(map(_machine, found)))}
    rows = []
    for group, alike in _groups(found).items():
        differs = [(key, each) for key, each in alike[0]["differs"].items() if key != "seed"]
        words = " ".join(f"-S {key}={shlex.quote(in_yaml(each))}" for key, each in differs)
        machines = sorted({letters[_machine(each)] for each in alike})
        rows.append([_title(group), f"`{words}`" if words else "none", ", ".join(machines)])
    told = "; ".join(f"{letter}: {machine}" for machine, letter in letters.items())
    return [table(["recipe", "settings", "machine"], ["---"] * 3, rows), f"Machines: {told}."]


def table(*lines: Any) -> str:
    *head, rows = lines
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (*head, *rows))


def _name(training: Training) -> str:
    """Recipe and seed, and its variant's name or a star where it did not follow the recipe in all."""
    variant = training.get("variant", "")
    mark = f", {variant}" if variant else "*" * _varied(training)
    return f"{training['recipe']}, {training['seed']}{mark}"


def _commits(training: Training) -> str:
    """The commit that trained, and those that pretrained and tested where they are others."""
    others = [f"{done} by {training[done][:7]}" for done in ("pretrained", "tested") if done in training]
    return f"{training['commit'][:7]} ({', '.join(others)})" if others else f"{training['commit'][:7]}"


def _varied(training: Training) -> bool:
    return bool(training["differs"].keys() - {"seed"})


def _machine(training: Training) -> str:
    machine = training["hardware"]
    gpus = ", ".join(machine["gpus"]) or "no GPU"
    how = training["computed"].get("precision", "fp32")
    return f"{machine['cpu_model']}, {machine['threads']} cores, {gpus}, torch {machine['torch']}, {how}"


def _together(training: Training) -> float | None:
    """Seconds of training in all; None where one of the two was resumed, whose time is unknown."""
    parts = [training["time"][f"{part}_seconds"] for part in ("pretraining", "training")]
    return None if None in parts else sum(parts)


def _minutes(seconds: float | None) -> str:
    return "–" if seconds is None else number(seconds / 60)


def _accuracy(value: float, ci95: float) -> str:
    return f"{100 * value:.2f} ± {100 * ci95:.2f}"


def _curves(found: Sequence[Training]) -> Figure:
    """Draw validation accuracy over minutes of training, a line for each training whose minutes are known.

    Variants of a recipe are left out: many share its pretraining, and so most of its line.
    """
    figure = Figure((6.4, 4.6), layout="constrained")
    axes = figure.subplots()
    drawn = [each for each in found if "variant" not in each and _together(each) is not None]
    recipes = list(dict.fromkeys(each["recipe"] for each in drawn))
    for training in drawn:
        begun: list[list[float]] = training["pretraining_validations"]
        after: list[list[float]] = training["validations"]
        colour = f"C{recipes.index(training['recipe'])}"
        style: dict[str, Any] = {"color": colour, "marker": "o", "markersize": 3}
        axes.plot(*_in_minutes(after), "-", label=_name(training), **style)
        if begun:
            axes.plot(*_in_minutes([*begun, after[0]]), ":", **style)
    axes.set_xlabel("minutes of training (dotted: pretraining)")
    axes.set_ylabel("accuracy on val, 5-way 1-shot (%)")
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def _in_minutes(points: Sequence[Sequence[float]]) -> tuple[list[float], list[float]]:
    return [seconds / 60 for seconds, _ in points], [100 * share for _, share in points]


if __name__ == "__main__":
    sys.exit(guarded(main))
