"""Which trained network a command works with."""

from __future__ import annotations

import argparse
from pathlib import Path

from parashot.cli.arguments import tell

SHIPPED = Path(__file__).parents[1] / "weights/fast-conv4.safetensors"
"""Trained by recipe `fast-conv4` on the real miniImageNet; its model card lies beside it."""


def add_weights(parser: argparse.ArgumentParser) -> None:
    """Add `--weights`."""
    parser.add_argument(
        "--weights",
        metavar="FILE",
        type=Path,
        help="the model.pt of a finished training; by default the one that the study in this folder chose, "
        "if it was of photographs, else the network that comes with parashot",
    )


def weights_of(command: argparse.Namespace) -> Path:
    """The file that was named, or the default: which one, is told on stderr."""
    if command.weights is not None:
        return Path(command.weights)
    chosen = _chosen_by_the_study()
    if chosen is None:
        tell("network: the one that comes with parashot, fast-conv4, trained on miniImageNet")
        return SHIPPED
    tell(f"network: {chosen}, of the study in this folder")
    return chosen


def _chosen_by_the_study() -> Path | None:
    """What the finished study in this folder chose by validation; None where it saw synthetic images only."""
    from parashot.records import EvaluateResult, read_json, read_result

    found, summary = Path("results/evaluate/result.json"), Path("results/summary.json")
    if not (found.exists() and summary.exists()) or read_json(summary).get("synthetic"):
        return None
    return Path("results/train") / read_result(EvaluateResult, found).strategy / "model.pt"
