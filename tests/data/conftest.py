"""Small images for data tests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from parashot.data.images import encode_jpeg

MakeJpeg = Callable[[int], bytes]


@pytest.fixture(scope="session")
def jpeg() -> MakeJpeg:
    """`jpeg(n)`: the n-th of many different 8×8 JPEGs, as bytes."""

    def make(number: int) -> bytes:
        colour = np.random.default_rng(number).integers(0, 256, 3)
        return encode_jpeg(np.broadcast_to(colour, (8, 8, 3)).astype(np.uint8))

    return make
