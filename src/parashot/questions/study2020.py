"""Figures that the study of 2020 printed, which the report shows beside its own.

2 × Xeon Gold 5115 (40 hardware threads), 4 × Tesla P40, PyTorch 1.6; 5-way, 1 shot, batchsz 30, 224 pixels.
Its claims stand in the `claims.py` of each question.
"""

from __future__ import annotations

HARDWARE_THREADS = 40

TABLE_2 = {2: 0.54, 8: 0.78, 16: 1.0, 20: 1.04, 32: 1.18, 50: 1.62, 60: 0.89, 70: 0.35}
"""Speedup by workers, which it does not print: they follow from speedup / efficiency.

Its T_1 without workers is 0.00044 s, which cannot decode 300 images: what was timed is not loading.
"""
