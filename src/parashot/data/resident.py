"""A split that lives in the device's memory: items are drawn and gathered there, without a loader."""

from __future__ import annotations

import numpy as np
import psutil
import torch

from parashot.data.packed import PackedSplit
from parashot.errors import DeviceError

_ROOM_TO_WORK = 1.1
"""Share of the split's size that must be free: a little more than it takes."""


class ResidentSplit:
    """All images of a split, uint8 [images, h, w, 3] on `device`, and its class sizes, int64 [classes]."""

    def __init__(self, split: PackedSplit, device: torch.device) -> None:
        """Copy the split. Raises `DeviceError` where the device has not the room for it."""
        free = _free_bytes(device)
        if split.images.nbytes * _ROOM_TO_WORK > free:
            raise DeviceError(
                f"loader.backend: resident needs {split.images.nbytes / 2**30:.1f} GiB on {device} for the "
                f"split {split.name}, but {free / 2**30:.1f} GiB are free; set it to packed"
            )
        self.name = split.name
        self.images = torch.from_numpy(np.array(split.images)).to(device)
        self.class_sizes = torch.from_numpy(np.array(split.class_sizes)).to(device)


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)
