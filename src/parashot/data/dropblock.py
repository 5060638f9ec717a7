"""DropBlock: squares of maps are zeroed in training, so that no class is told by one spot alone.

Ghiasi, Lin and Le, DropBlock: A regularization method for convolutional networks (NeurIPS 2018), section 3;
Lee et al., MetaOptNet (CVPR 2019), use it in a ResNet-12. What is dropped is a function of each image's key,
so a training that goes on from a saved state drops the same; torchvision.ops.drop_block2d draws from the
global generator.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from parashot.data.episodes import uniforms

_LARGEST_BLOCK = 5
"""Pixels of a map; MetaOptNet's."""


def drop_blocks(maps: Tensor, keys: Tensor, share: float) -> Tensor:
    """Zero squares that cover about `share` of each map, and scale up the rest of the image's maps.

    maps: [m, C, h, w]; keys: int64 [m]. Squares have 5 × 5 pixels, or the largest odd size that fits.
    """
    m, channels, height, width = maps.shape
    block = min(_LARGEST_BLOCK, height, width)
    block -= 1 - block % 2
    rows, columns = height - block + 1, width - block + 1  # where a whole square can lie
    draws = _draws(keys, channels * rows * columns).view(m, channels, rows, columns)
    centres = draws < share * height * width / (block**2 * rows * columns)
    centres = F.pad(centres.to(maps.dtype), [block // 2] * 4)
    kept = 1 - F.max_pool2d(centres, block, stride=1, padding=block // 2)
    left = kept.mean((1, 2, 3), keepdim=True).clamp_min(1 / kept[0].numel())
    return maps * (kept / left)


@torch.library.custom_op("parashot::draws", mutates_args=())
def _draws(keys: Tensor, count: int) -> Tensor:
    """Uniform numbers [m, count] of keys [m], by kernels that torch.compile leaves alone.

    It would take the counters times a constant for an index, which overflows where 64 bits are meant to wrap.
    """
    return uniforms(keys, count)


@_draws.register_fake
def _(keys: Tensor, count: int) -> Tensor:
    return keys.new_empty((*keys.shape, count), dtype=torch.float32)
