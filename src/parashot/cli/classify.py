"""`parashot classify`: few-shot classification of the user's own pictures."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from parashot.classify.classifier import Classifier
from parashot.classify.pictures import find_images, find_shots, read_square
from parashot.classify.predictions import (
    Prediction,
    as_csv,
    as_json,
    as_table,
    known_and_right,
    sheet,
)
from parashot.cli.shared import chosen_weights, tell
from parashot.errors import DataError
from parashot.files import write_text
from parashot.model.weights import load_network

_AT_ONCE = 64


def run(command: argparse.Namespace) -> None:
    """Print the class of every picture that can be read; the others are told on stderr."""
    shots, images = find_shots(command.shots), find_images(command.images)
    weights = chosen_weights(command.weights)
    network = load_network(weights)
    side = network.test_size
    examples = {label: [read_square(path, side) for path in files] for label, files in shots.items()}
    classifier = Classifier(network, examples)
    broken: list[str] = []
    predictions = list(_predictions(classifier, images, side, command.reject, broken))
    classes, score = classifier.classes, "probability" if classifier.calibrated else "score"
    if command.csv:
        print(as_csv(predictions, classes), end="")
    else:
        print((as_json if command.json else as_table)(predictions, classes, score), end="")
    known, right = known_and_right(predictions, classifier.classes)
    if known:
        tell(f"{right} of {known} pictures whose folder is called like a class are taken for it")
    if command.html:
        write_text(command.html, sheet(predictions, shots, str(weights), score))
        tell(f"sheet: {command.html}")
    for line in broken:
        tell(f"error: {line}")
    if broken:
        raise DataError(f"{len(broken)} of {len(images)} pictures could not be read; the others are above")


def _predictions(
    classifier: Classifier, images: Sequence[Path], side: int, least: float, broken: list[str]
) -> Iterator[Prediction]:
    """Yield a prediction for each picture that can be read, and note the others in `broken`."""
    for begin in range(0, len(images), _AT_ONCE):
        pictures = {}
        for path in images[begin : begin + _AT_ONCE]:
            try:
                pictures[path] = read_square(path, side)
            except DataError as error:
                broken.append(str(error))
        scores = classifier.scores(list(pictures.values()))
        for path, row in zip(pictures, scores, strict=True):
            yield Prediction(path, tuple(row.tolist()), least)
