"""`parashot classify`: few-shot classification of the user's own pictures."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from parashot.cli.arguments import Commands, tell
from parashot.cli.weights import add_weights, weights_of
from parashot.errors import DataError

if TYPE_CHECKING:
    from parashot.classify.classifier import Classifier
    from parashot.classify.predictions import Prediction
    from parashot.data.images import Pixels

_AT_ONCE = 64


def add_parser(commands: Commands) -> None:
    """Add `parashot classify`."""
    parser = commands.add_parser(
        "classify",
        help="classify your own pictures by a few examples of each class",
        description="Classify pictures by examples. The classes need not be those of the training.",
    )
    parser.add_argument(
        "--shots",
        metavar="DIR",
        type=Path,
        required=True,
        help="examples: a folder per class with one or more images",
    )
    parser.add_argument(
        "--images", metavar="PATH", type=Path, nargs="+", required=True, help="pictures, or folders of them"
    )
    add_weights(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON in full precision")
    form.add_argument("--csv", action="store_true", help="print CSV in full precision")
    parser.add_argument("--html", metavar="FILE", type=Path, help="also write a page with thumbnails")
    parser.set_defaults(run=_run)


def _run(command: argparse.Namespace) -> None:
    from parashot.classify.classifier import Classifier
    from parashot.classify.pictures import find_images, find_shots, read_square
    from parashot.classify.predictions import as_csv, as_json, as_table, known_and_right
    from parashot.classify.sheet import sheet
    from parashot.files import write_text
    from parashot.model.weights import load_network

    shots, images = find_shots(command.shots), find_images(command.images)
    weights = weights_of(command)
    network = load_network(weights)
    side = network.image_size
    examples = {label: [read_square(path, side) for path in files] for label, files in shots.items()}
    classifier = Classifier(network, examples)
    broken: list[str] = []
    predictions = list(_predictions(classifier, images, side, broken))
    say = as_json if command.json else as_csv if command.csv else as_table
    print(say(predictions, classifier.classes), end="")
    known, right = known_and_right(predictions, classifier.classes)
    if known:
        tell(f"{right} of {known} pictures whose folder is called like a class are taken for it")
    if command.html:
        write_text(command.html, sheet(predictions, shots, str(weights)))
        tell(f"sheet: {command.html}")
    for line in broken:
        tell(f"error: {line}")
    if broken:
        raise DataError(f"{len(broken)} of {len(images)} pictures could not be read; the others are above")


def _predictions(
    classifier: Classifier, images: Sequence[Path], side: int, broken: list[str]
) -> Iterator[Prediction]:
    """Yield a prediction for each picture that can be read, and note the others in `broken`."""
    from parashot.classify.pictures import read_square
    from parashot.classify.predictions import Prediction

    for begin in range(0, len(images), _AT_ONCE):
        pictures: dict[Path, Pixels] = {}
        for path in images[begin : begin + _AT_ONCE]:
            try:
                pictures[path] = read_square(path, side)
            except DataError as error:
                broken.append(str(error))
        scores = classifier.scores(list(pictures.values()))
        for path, row in zip(pictures, scores, strict=True):
            yield Prediction(path, tuple(row.tolist()))
