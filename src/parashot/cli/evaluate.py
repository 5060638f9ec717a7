"""`parashot evaluate`: a network's few-shot accuracy on classes it never saw."""

from __future__ import annotations

import argparse
import json
import logging
from contextlib import ExitStack
from dataclasses import asdict

from parashot.cli.shared import chosen_weights
from parashot.data.pack import packed_images
from parashot.errors import DataError
from parashot.params import EpisodeSpec
from parashot.parsing import parse
from parashot.plain import aligned
from parashot.progress import OneLine
from parashot.tasks.few_shot import measure
from parashot.train.records import TaskAccuracy


def run(command: argparse.Namespace) -> None:
    """Print the accuracy, in JSON named after the split that it was measured on."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[OneLine()])
    weights, split, seed = chosen_weights(command.weights), command.split, command.seed
    shape = {key: getattr(command, key) for key in ("n_way", "k_shot", "k_query")}
    spec = parse(EpisodeSpec, shape)
    with ExitStack() as stack:
        try:
            packed = stack.enter_context(packed_images(command.data))
        except DataError as error:
            raise DataError(f"--data {error}") from error
        task = measure(weights, packed, split, spec, command.episodes, seed, command.transductive)
    if not command.json:
        print(_table(task), end="")
        return
    tree = asdict(task)
    accuracy = {f"{split}_{key}": tree.pop(key) for key in ("accuracy", "accuracy_ci95")}
    about = {"weights": str(weights), "split": split, "seed": seed}
    print(json.dumps({**about, **accuracy, **tree}, indent=2))


def _table(task: TaskAccuracy) -> str:
    def accuracy(value: float, ci95: float) -> str:
        return f"{100 * value:.2f} ± {100 * ci95:.2f}%"

    margin = f"{100 * task.margin + 0.0:+.2f} ± {100 * task.margin_ci95:.2f} points"
    rows = [
        ("", f"{task.n_way}-way {task.k_shot}-shot, {task.episodes:,} episodes"),
        ("accuracy", accuracy(task.accuracy, task.accuracy_ci95)),
        ("cosine of the same embedding", accuracy(task.cosine_accuracy, task.cosine_accuracy_ci95)),
        ("margin, episode by episode", margin),
    ]
    if task.adds_cosine:
        rows.append(("without cosine", accuracy(task.relation_accuracy, task.relation_accuracy_ci95)))
    if task.transductive_episodes:
        measured = accuracy(task.transductive_accuracy, task.transductive_accuracy_ci95)
        rows.append((f"transductive, {task.transductive_episodes:,} episodes", measured))
    return aligned(rows)
