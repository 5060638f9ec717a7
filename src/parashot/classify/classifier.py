"""Few-shot classification of any pictures by a trained network.

n classes · m pictures · C channels of a map, h × w
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from parashot.data.images import Pixels, resize_square
from parashot.data.pixels import prepare
from parashot.errors import DataError
from parashot.model.network import RelationNetwork

_IMAGES_AT_ONCE = 64
_PAIR_BYTES = 2**27
"""Of joined maps, should the network join them; its layers take several times as much."""


class Classifier:
    """A Relation Network (Sung et al., CVPR 2018, section 3.1) and the examples it compares pictures with.

    The classes need not be among those it was trained on, nor as many. Each is stood for by the mean of its
    examples' maps, or by their sum where the network was trained so.
    """

    def __init__(
        self,
        network: RelationNetwork,
        shots: Mapping[str, Sequence[Pixels]],
        device: torch.device | str | None = None,
    ) -> None:
        """Embed the examples `shots`: class -> uint8 images [h, w, 3] of any sizes.

        `device` is a GPU where there is one, unless it is given.

        Raises `DataError` for fewer than two classes, a class without example, or unequal numbers of them
        where the network sums.
        """
        _check(shots, network.shots)
        self.classes = tuple(shots)
        self._device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self._network = network.to(self._device).eval()
        self._maps = torch.cat([self._class_map(images) for images in shots.values()])  # [n, C, h, w]

    @torch.inference_mode()
    def scores(self, images: Sequence[Pixels]) -> npt.NDArray[np.float64]:
        """Relation scores [m, n] between 0 and 1 of uint8 images [h, w, 3]; columns as in `classes`.

        The highest of a row names the class. They compare classes for one picture and are no probabilities.
        """
        return self._related(self._embedded(images)) if len(images) else np.zeros((0, len(self.classes)))

    @torch.inference_mode()
    def _class_map(self, images: Sequence[Pixels]) -> Tensor:
        """What stands for a class, [1, C, h, w]."""
        total = self._embedded(images).sum(0, keepdim=True)
        return total / len(images) if self._network.shots == "mean" else total

    def _embedded(self, images: Sequence[Pixels]) -> Tensor:
        """Maps [m, C, h, w], so many images at a time as memory bears."""
        size = self._network.image_size
        pixels = torch.from_numpy(np.stack([resize_square(each, size) for each in images])).movedim(-1, -3)
        some = (each.to(self._device) for each in pixels.split(_IMAGES_AT_ONCE))
        return torch.cat([self._network.embed(prepare(each, size)) for each in some])

    def _related(self, maps: Tensor) -> npt.NDArray[np.float64]:
        """Scores [m, n] of maps [m, C, h, w], so many at a time as memory bears."""
        at_once = max(1, _PAIR_BYTES // (2 * self._maps.nbytes))
        classes = self._maps[None, :, None]  # one episode, one map per class
        parts = [
            self._network.relate(classes, maps[None, begin : begin + at_once])[0]
            for begin in range(0, len(maps), at_once)
        ]
        scores: npt.NDArray[Any] = torch.cat(parts).double().sigmoid().cpu().numpy()
        return scores


def _check(shots: Mapping[str, Sequence[Pixels]], how: str) -> None:
    if len(shots) < 2:
        raise DataError(f"{len(shots)} class to choose from; give examples of 2 or more")
    for label, images in shots.items():
        if not len(images):
            raise DataError(f"class {label!r} has no example; give at least one")
    counts = {label: len(images) for label, images in shots.items()}
    if how == "sum" and len(set(counts.values())) > 1:
        few, many = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
        raise DataError(
            f"this network sums a class's examples, so every class needs equally many: {few!r} has "
            f"{counts[few]}, {many!r} has {counts[many]}"
        )
