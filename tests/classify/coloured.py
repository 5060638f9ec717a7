"""Pictures of colours, and networks for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import parashot
from parashot import ModelParams

COLOURS = {"blue sky": (40, 60, 230), "grass": (30, 200, 40), "<b>fire</b>": (240, 40, 20)}
SHIPPED = Path(parashot.__file__).parent / "weights/fast-conv4.safetensors"
MODEL = ModelParams("conv4", 16, "auto", "mean", "relation", "kaiming", 0)


def picture(
    colour: tuple[int, int, int], seed: int, height: int = 20, width: int = 16
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Noise around a colour, uint8 [height, width, 3]."""
    noise = np.random.default_rng(seed).integers(-25, 26, (height, width, 3))
    return (np.array(colour) + noise).clip(0, 255).astype(np.uint8)
