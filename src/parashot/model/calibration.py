"""Scores as probabilities: by a temperature, found on classes that neither training nor test has.

Guo et al., On Calibration of Modern Neural Networks (ICML 2017): one number that scores are divided by makes
probabilities of their softmax, and changes no prediction. More examples of a class make its mean less noisy,
which scores do not know of: so the number falls with a power of the number of examples.

m pictures · n classes
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from parashot.parsing import Number
from parashot.records import record

_WIDEST = 100.0
"""Temperatures are sought between this and its inverse."""


@record
class Calibration:
    """Temperature with one example of each class, and the power by which it changes with their number."""

    first: Annotated[Number, Field(gt=0)]
    power: Number

    def temperature(self, shots: float) -> float:
        """What scores with so many examples of each class are divided by."""
        return float(self.first * shots**self.power)

    @classmethod
    def through(cls, temperatures: Mapping[int, float]) -> Calibration:
        """The one with the `temperatures` of one and of some other number of examples."""
        (_, first), (shots, other) = sorted(temperatures.items())
        return cls(first, math.log(other / first, shots))


@dataclass(frozen=True)
class Bin:
    """Pictures whose highest probability lies in one part of 0 to 1.

    share: of all pictures. confidence: mean of that probability. accuracy: share of right ones among them.
    """

    share: float
    confidence: float
    accuracy: float


def probabilities(scores: Tensor, temperature: float) -> Tensor:
    """Probabilities [m, n] of scores [m, n] before the sigmoid."""
    return (scores / temperature).softmax(-1)


def temperature_of(scores: Tensor, labels: Tensor) -> float:
    """Temperature at which scores [m, n] explain labels [m] best: of the least cross-entropy."""
    from scipy.optimize import minimize_scalar

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
