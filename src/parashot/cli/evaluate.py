"""`parashot evaluate`: a network's few-shot accuracy on classes it never saw."""

from __future__ import annotations

import argparse
import json
import logging
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from parashot.cli.arguments import Commands, add_counts
from parashot.cli.weights import add_weights, weights_of

if TYPE_CHECKING:
    from parashot.train.records import TaskAccuracy


def add_parser(commands: Commands) -> None:
    """Add `parashot evaluate`."""
    parser = commands.add_parser(
        "evaluate",
        help="measure a network's few-shot accuracy on unseen classes",
        description="Measure a network's accuracy on episodes of unseen classes, in eval mode, with 95% "
        "intervals, and the margin of its relation head over the cosine of the same embedding.",
    )
    parser.add_argument(
        "--data",
        metavar="PATH",
        type=Path,
        required=True,
        help="a copy of miniImageNet, or a study's data/packed",
    )
    add_weights(parser)
    parser.add_argument(
        "--split", choices=("test", "val"), default="test", help="split that the classes are from (test)"
    )
    counts = (
        ("n-way", 2, 5, "classes per episode"),
        ("k-shot", 1, 1, "examples per class"),
        ("k-query", 1, 15, "queries per class"),
        ("episodes", 2, 10_000, "episodes"),
        ("transductive", 0, 0, "number of these also measured with batch norm by their own images"),
        ("seed", 0, 0, "seed of the episodes"),
    )
    add_counts(parser, counts)
    parser.add_argument("--json", action="store_true", help="print JSON in full precision")
    parser.set_defaults(run=_run)


def _run(command: argparse.Namespace) -> None:
    from parashot.data.episodes import EpisodeSpec
    from parashot.data.pack import packed_images
    from parashot.progress import OneLine, passing
    from parashot.tasks.few_shot import measure

    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[OneLine()])
    weights = weights_of(command)
    spec = EpisodeSpec(command.n_way, command.k_shot, command.k_query)
    with packed_images(command.data, passing) as packed:
        task = measure(
            weights, packed, command.split, spec, command.episodes, command.seed, command.transductive
        )
    print(json.dumps(_tree(task, weights, command), indent=2) if command.json else _table(task))


def _tree(task: TaskAccuracy, weights: Path, command: argparse.Namespace) -> dict[str, object]:
    """The task's numbers; accuracy is that of the split it was measured on."""
    tree = asdict(task)
    split = {f"{command.split}_{key}": tree.pop(key) for key in ("accuracy", "accuracy_ci95")}
    return {"weights": str(weights), "split": command.split, "seed": command.seed, **split, **tree}


def _table(task: TaskAccuracy) -> str:
    from parashot.plain import aligned

    def accuracy(value: float, ci95: float) -> str:
        return f"{100 * value:.2f} ± {100 * ci95:.2f}%"

    margin = f"{100 * task.margin + 0.0:+.2f} ± {100 * task.margin_ci95:.2f} points"
    rows = [
        ("", f"{task.n_way}-way {task.k_shot}-shot, {task.episodes:,} episodes"),
        ("accuracy", accuracy(task.accuracy, task.accuracy_ci95)),
        ("cosine of the same embedding", accuracy(task.cosine_accuracy, task.cosine_accuracy_ci95)),
        ("margin, episode by episode", margin),
        ("relation head alone", accuracy(task.relation_accuracy, task.relation_accuracy_ci95)),
    ]
    if task.transductive_episodes:
        measured = accuracy(task.transductive_accuracy, task.transductive_accuracy_ci95)
        rows.append((f"transductive, {task.transductive_episodes:,} episodes", measured))
    return aligned(rows).rstrip("\n")
