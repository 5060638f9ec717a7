"""The trained network that a command works with."""

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
        help="model.safetensors of a training; default: the one that stage evaluate chose in this folder, if "
        "it was trained on photographs, else the network that comes with parashot",
    )


def weights_of(command: argparse.Namespace) -> Path:
    """Return the file that was named, or the default, told on stderr."""
    if command.weights is not None:
        return Path(command.weights)
    chosen = _chosen_here()
    if chosen is None:
        tell("network: the one that comes with parashot, fast-conv4, trained on miniImageNet")
        return SHIPPED
    tell(f"network: {chosen}, which stage evaluate of this folder chose")
    return chosen


def _chosen_here() -> Path | None:
    """Model that stage `evaluate` of this folder chose; None where it saw synthetic images only."""
    from parashot.questions.accuracy.records import EvaluateResult
    from parashot.records import read_result, read_runs

    chosen = Path("results/evaluate/result.json")
    if not chosen.exists():
        return None
    folder = Path("results/train", read_result(EvaluateResult, chosen).strategy)
    model = folder / "model.safetensors"
    if not model.exists():  # another training is under way
        return None
    source = read_runs(folder / "records.jsonl")[0].params["data.source"]
    return None if source == "synthetic" else model
