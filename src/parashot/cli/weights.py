"""Which trained network a command works with."""

from __future__ import annotations

import argparse
from pathlib import Path

from parashot.errors import ParashotError


def add_weights(parser: argparse.ArgumentParser) -> None:
    """Add `--weights`."""
    parser.add_argument(
        "--weights",
        metavar="FILE",
        type=Path,
        help="the model.pt of a finished training; by default the one that the study in this folder chose",
    )


def weights_of(command: argparse.Namespace) -> Path:
    """The file that was named, or the one that the study in this folder chose by validation.

    Raises `ParashotError` where there is neither.
    """
    from parashot.records import EvaluateResult, read_result

    if command.weights is not None:
        return Path(command.weights)
    found = Path("results/evaluate/result.json")
    if not found.exists():
        raise ParashotError(
            "no finished study in this folder; run `dvc repro` (or `dvc checkout`), or give --weights FILE"
        )
    return Path("results/train") / read_result(EvaluateResult, found).strategy / "model.pt"
