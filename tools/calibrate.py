"""`python tools/calibrate.py --data PATH`: make probabilities of the scores of the network of the package.

The temperature is found on episodes of the validation classes and written into the file of the network; what
it does, and how well a threshold rejects pictures of other classes, is measured on the test classes. Fills in
the tables of docs/results.md and draws docs/pictures/calibration.png.
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import minimize_scalar
from torch import Tensor
from torch.nn import functional as F

from parashot.cli.shared import SHIPPED
from parashot.command import guarded
from parashot.data.episodes import SplitName
from parashot.data.pack import packed_images
from parashot.files import write_text
from parashot.model.calibration import Calibration, probabilities
from parashot.model.losses import class_of_queries
from parashot.model.network import RelationNetwork
from parashot.model.weights import load_network, save_weights
from parashot.params import EpisodeSpec
from parashot.progress import OneLine
from parashot.tasks.evaluation import draw_split, related
from results import PAGE, ROOT, filled, table

PICTURE = ROOT / "docs/pictures/calibration.png"
MARKS = "<!-- calibration: begin -->", "<!-- calibration: end -->"
WAYS, SHOTS, QUERIES, EPISODES = 5, (1, 5), 15, 500
THRESHOLDS = (0.4, 0.5, 0.6, 0.7, 0.8)
_WIDEST = 100.0
"""Temperatures are sought between this and its inverse."""


@dataclass(frozen=True)
class Bin:
    """Pictures whose highest probability lies in one part of 0 to 1.

    share: of all pictures. confidence: mean of that probability. accuracy: share of right ones among them.
    """

    share: float
    confidence: float
    accuracy: float


def main() -> None:
    """Calibrate, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", metavar="PATH", type=Path, required=True, help="a copy of miniImageNet")
    words = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[OneLine()])
    network = load_network(SHIPPED)
    with packed_images(words.data) as packed:
        found = {shots: temperature_of(*known(scores_of(network, packed, "val", shots))) for shots in SHOTS}
        tested = [scores_of(network, packed, "test", shots) for shots in SHOTS]
    calibration = calibration_through(found)
    save_weights(SHIPPED, network.params, network.state_dict(), calibration)
    figures = f"{errors(tested, calibration)}\n\n{rejections(tested, calibration)}"
    write_text(PAGE, filled(PAGE.read_text(encoding="utf-8"), figures, *MARKS))
    diagram(tested, calibration).savefig(PICTURE, dpi=150)
    print(f"{calibration}\n\n{figures}")


# --- scores, probabilities and how far these are from true: m pictures, n classes ----------------------


def scores_of(network: RelationNetwork, packed: Path, split: SplitName, shots: int) -> Tensor:
    """Scores [e, q, n] of episodes of one class more than `known` keeps."""
    spec = EpisodeSpec(WAYS + 1, shots, QUERIES)
    return related(network, network.relate, draw_split(packed, split, spec, EPISODES, 0)).double()


def known(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Scores [m, n - 1] and labels [m] of episodes without their last class."""
    some = scores[:, : WAYS * QUERIES, :WAYS]
    return some.flatten(0, 1), class_of_queries(some).repeat(len(some))


def unknown(scores: Tensor) -> Tensor:
    """Scores [m, n - 1] of the queries of the last class, by the others."""
    return scores[:, WAYS * QUERIES :, :WAYS].flatten(0, 1)


def calibration_through(temperatures: Mapping[int, float]) -> Calibration:
    """The one with the `temperatures` of one and of some other number of examples."""
    (_, first), (shots, other) = sorted(temperatures.items())
    return Calibration(first, math.log(other / first, shots))


def temperature_of(scores: Tensor, labels: Tensor) -> float:
    """Temperature at which scores [m, n] explain labels [m] best: of the least cross-entropy."""

    def loss(log_temperature: float) -> float:
        return float(F.cross_entropy(scores / np.exp(log_temperature), labels))

    widest = np.log(_WIDEST)
    return float(np.exp(minimize_scalar(loss, bounds=(-widest, widest), method="bounded").x))


def reliability(probabilities: Tensor, labels: Tensor, bins: int = 15) -> list[Bin]:
    """Pictures by their highest probability, in equal parts of 0 to 1, without those that have none."""
    confidence, predicted = probabilities.max(1)
    right = (predicted == labels).double()
    place = (confidence * bins).long().clamp_max(bins - 1)
    return [
        Bin(float(some.double().mean()), float(confidence[some].mean()), float(right[some].mean()))
        for each in range(bins)
        if (some := place == each).any()
    ]


def calibration_error(bins: list[Bin]) -> float:
    """Expected calibration error: mean distance of confidence and accuracy, over pictures."""
    return sum(each.share * abs(each.confidence - each.accuracy) for each in bins)


def _bins(scores: Tensor, temperature: float) -> list[Bin]:
    of, labels = known(scores)
    return reliability(probabilities(of, temperature), labels)


# --- tables and picture ---------------------------------------------------------------------------------


def errors(tested: list[Tensor], calibration: Calibration) -> str:
    """Table of the expected calibration error on test, before and after."""
    rows = []
    for shots, scores in zip(SHOTS, tested, strict=True):
        temperature = calibration.temperature(shots)
        before, after = (100 * calibration_error(_bins(scores, each)) for each in (1.0, temperature))
        rows.append([str(shots), f"{before:.1f}", f"{temperature:.2f}", f"{after:.1f}"])
    return table(["shots", "softmax of the scores", "temperature", "calibrated"], ["---:"] * 4, rows)


def rejections(tested: list[Tensor], calibration: Calibration) -> str:
    """Table of pictures of known and of other classes that each threshold rejects."""
    rows = []
    for least in THRESHOLDS:
        row = [f"{least}"]
        for shots, scores in zip(SHOTS, tested, strict=True):
            (of, labels), temperature = known(scores), calibration.temperature(shots)
            probable, predicted = probabilities(of, temperature).max(1)
            kept = probable >= least
            other = probabilities(unknown(scores), temperature).amax(1) >= least
            shares = (~kept, other, (predicted == labels)[kept])
            row += [f"{100 * float(each.double().mean()):.0f}%" for each in shares]
        rows.append(row)
    head = ["`--reject`"]
    for shots in SHOTS:
        head += [f"{shots}-shot: known, rejected", "others, accepted", "accuracy of what is kept"]
    return table(head, ["---:"] * len(head), rows)


def diagram(tested: list[Tensor], calibration: Calibration) -> Figure:
    """Draw accuracy over confidence, before and after, for each number of shots."""
    figure = Figure((6.4, 3.2), layout="constrained")
    for axes, shots, scores in zip(figure.subplots(1, len(SHOTS), sharey=True), SHOTS, tested, strict=True):
        axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        for each, name in ((1.0, "softmax of the scores"), (calibration.temperature(shots), "calibrated")):
            bins = _bins(scores, each)
            confidences, accuracies = [one.confidence for one in bins], [one.accuracy for one in bins]
            axes.plot(confidences, accuracies, "o-", label=name)
        axes.set(title=f"{shots}-shot", xlabel="probability said", xlim=(0.2, 1), ylim=(0.2, 1))
    axes.legend()
    figure.axes[0].set_ylabel("share that is right")
    return figure


if __name__ == "__main__":
    sys.exit(guarded(main))
