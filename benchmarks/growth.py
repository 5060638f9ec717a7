"""Whether a quantity grows while work goes on: by its slope, and by how much more it is in the end.

Both are robust against odd looks. The slope (Theil and Sen: the median over all pairs of looks) finds what
creeps; what is more in the last quarter than in the second finds a single step up as well. The first quarter
warms up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEAST_LOOKS = 8
"""Fewer make no quarters."""

_LEFT_OUT = 0.1
"""Share of the looks of a quarter, at either end of their order, that its mean leaves out."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Growth:
    """How one quantity went; means are of a quarter's looks without the oddest."""

    early: float
    """Mean of the second quarter."""
    late: float
    """Mean of the last quarter."""
    distance: float
    """Units of work from one to the other."""
    slope: float
    """Per unit of work."""

    @classmethod
    def of(cls, at: Sequence[float], values: Sequence[float]) -> Growth:
        """Of `values` seen after `at` units of work, which increase.

        Raises `ValueError` for fewer than `LEAST_LOOKS`.
        """
        if len(at) < LEAST_LOOKS:
            raise ValueError(f"{len(at)} looks; at least {LEAST_LOOKS} are needed")
        x, y = np.asarray(at, dtype=np.float64), np.asarray(values, dtype=np.float64)
        quarter = len(x) // 4
        second, last = slice(quarter, 2 * quarter), slice(-quarter, None)
        distance = float(x[last].mean() - x[second].mean())
        return cls(_mean(y[second]), _mean(y[last]), distance, _slope(x[quarter:], y[quarter:]))

    @property
    def more(self) -> float:
        """The most that either says was added from the second quarter to the last."""
        return max(self.late - self.early, self.slope * self.distance)


def _mean(values: Floats) -> float:
    out = int(_LEFT_OUT * len(values))
    return float(np.sort(values)[out : len(values) - out].mean())


def _slope(x: Floats, y: Floats) -> float:
    first, second = np.triu_indices(len(x), 1)
    return float(np.median((y[second] - y[first]) / (x[second] - x[first])))
