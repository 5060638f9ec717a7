"""Figures that the study of 2020 printed, which the report shows beside its own.

2 × Xeon Gold 5115 (40 hardware threads), 4 × Tesla P40, PyTorch 1.6; 5-way, 1 shot, batchsz 30, 224 pixels.
Its claims stand in the `claims.py` of each question.
"""

from __future__ import annotations

from dataclasses import dataclass

HARDWARE_THREADS = 40

BEST_VALIDATION, BEST_SECONDS = 0.582, 89_856
"""The best of DDP's many validations of 200 episodes, and its whole time."""


@dataclass(frozen=True)
class StudyLoaderRow:
    """A row of its Table 2. It prints no worker counts: they follow from speedup / efficiency."""

    workers: int
    seconds: float
    speedup: float
    efficiency: float


TABLE_2 = (
    StudyLoaderRow(2, 0.00081, 0.54, 0.27),
    StudyLoaderRow(8, 0.00056, 0.78, 0.098),
    StudyLoaderRow(16, 0.00044, 1.0, 0.0625),
    StudyLoaderRow(20, 0.00042, 1.04, 0.0523),
    StudyLoaderRow(32, 0.00037, 1.18, 0.0371),
    StudyLoaderRow(50, 0.00027, 1.62, 0.0325),
    StudyLoaderRow(60, 0.00049, 0.89, 0.0149),
    StudyLoaderRow(70, 0.00126, 0.35, 0.005),
)
"""Against T_1 = 0.00044 s without workers. 0.4 ms cannot decode 300 images: what was timed is not loading."""
