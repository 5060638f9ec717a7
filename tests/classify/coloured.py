"""Pictures of colours."""

from __future__ import annotations

import numpy as np


def picture(
    colour: tuple[int, int, int], seed: int, height: int = 20, width: int = 16
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Noise around a colour, uint8 [height, width, 3]."""
    noise = np.random.default_rng(seed).integers(-25, 26, (height, width, 3))
    return (np.array(colour) + noise).clip(0, 255).astype(np.uint8)
