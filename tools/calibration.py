"""A temperature for scores, found on pictures of known classes, and how far probabilities are from true.

m pictures · n classes
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from torch import Tensor
from torch.nn import functional as F

from parashot.model.calibration import Calibration

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
