"""Where half precision ends: there scores would tie, and losses be coarse."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def at_least_float32(values: Tensor) -> Tensor:
    """The same values; those of less than 32 bits as float32."""
    return values if values.dtype.itemsize > 2 else values.float()


def in_full_precision(module: nn.Module, maps: Tensor) -> Tensor:
    """Call `module` in float32 at least, within autocast too."""
    with torch.autocast(maps.device.type, enabled=False):
        result: Tensor = module(at_least_float32(maps))
    return result
