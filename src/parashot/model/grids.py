"""Maps as vectors: averaged over the fields of one or more grids, which keep where in the image something is.

The levels of Lazebnik et al., Beyond Bags of Features: Spatial Pyramid Matching (CVPR 2006). A grid of g has
g × g fields; that of 1 is the mean map, which has lost all places.

m images, C channels of a map, h × w pixels, d = C · (sum of g² over the grids) numbers of a vector.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F


def directions(maps: Tensor, grids: Sequence[int], centre: Tensor | None = None) -> Tensor:
    """Unit vectors [m, d] of maps [m, C, h, w] less a `centre` [C]; every grid has the same share of them.

    The product of two is the mean, over the grids, of the cosines between their averages.
    """
    levels = []
    for grid in grids:
        averages = _averages(maps, grid)
        averages = averages if centre is None else averages - centre[:, None]
        levels.append(F.normalize(averages.flatten(1), dim=1) / len(grids) ** 0.5)
    return torch.cat(levels, dim=1)


def _averages(maps: Tensor, grid: int) -> Tensor:
    """Means of maps [m, C, h, w] over the fields of a grid [m, C, g²], in 32 bits at least.

    Half precision would round away what tells classes apart.
    """
    maps = maps if maps.dtype.itemsize > 2 else maps.float()
    return maps.mean((-2, -1))[..., None] if grid == 1 else F.adaptive_avg_pool2d(maps, grid).flatten(2)
