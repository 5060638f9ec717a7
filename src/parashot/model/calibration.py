"""Scores as probabilities: by a temperature, found on classes that neither training nor test has.

Guo et al., On Calibration of Modern Neural Networks (ICML 2017): one number that scores are divided by makes
probabilities of their softmax, and changes no prediction. It falls with a power of the number of examples:
more of them make a class's mean less noisy, which scores do not know of.

m pictures · n classes
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from parashot.parsing import Number
from parashot.records import record


@record
class Calibration:
    """Temperature with one example of each class, and the power by which it changes with their number."""

    first: Annotated[Number, Field(gt=0)]
    power: Number

    def temperature(self, shots: float) -> float:
        """What scores with so many examples of each class are divided by."""
        return float(self.first * shots**self.power)


def probabilities(scores: Tensor, temperature: float) -> Tensor:
    """Probabilities [m, n] of scores [m, n] before the sigmoid."""
    return (scores / temperature).softmax(-1)
