"""Few-shot classification of any pictures by a trained network.

n classes · m pictures · C channels of a map, h × w
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import geometric_mean

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from parashot.data.images import Pixels, resize_square
from parashot.data.pixels import prepare
from parashot.errors import DataError
from parashot.model.calibration import probabilities
from parashot.model.network import RelationNetwork

_IMAGES_AT_ONCE = 64
_COMPARED_BYTES = 2**27
"""Size of what is compared at once; the layers of a head take several times as much."""


class Classifier:
    """A Relation Network (Sung et al., CVPR 2018, section 3.1) with the examples of each class.

    The classes may be others than those it was trained on, and one may have more examples than another.
    """

    def __init__(
        self,
        network: RelationNetwork,
        shots: Mapping[str, Sequence[Pixels]],
        device: torch.device | str | None = None,
    ) -> None:
        """Embed the examples `shots`: class -> uint8 images [h, w, 3] of any sizes.

        device: by default a GPU where there is one.

        Raises `DataError` for fewer than two classes, a class without example, or unequal numbers of them
        where the network sums.
        """
        counts = {label: len(images) for label, images in shots.items()}
        if len(counts) < 2:
            raise DataError(f"{len(counts)} class: give examples of 2 or more classes")
        if empty := [label for label, count in counts.items() if not count]:
            raise DataError(f"{', '.join(empty)}: no example; give one or more examples of each class")
        if network.params.shots == "sum" and len(set(counts.values())) > 1:
            raise DataError(f"{counts}: this network sums a class's examples; give equally many of each")
        self.classes = tuple(shots)
        self._shots = geometric_mean(counts.values())
        self._device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self._network = network.to(self._device).eval()
        with torch.inference_mode():
            examples = [self._embedded(images) for images in shots.values()]
            # classes of as many examples together, since head `bdc` makes a matrix of each picture per call
            self._groups: list[tuple[list[int], Tensor]] = []  # columns, and maps [1, n, k, C, h, w]
            for count in {*counts.values()}:
                columns = [column for column, maps in enumerate(examples) if len(maps) == count]
                self._groups.append((columns, torch.stack([examples[each] for each in columns])[None]))

    @torch.inference_mode()
    def scores(self, images: Sequence[Pixels]) -> npt.NDArray[np.float64]:
        """Return scores [m, n] between 0 and 1 of uint8 images [h, w, 3]; columns as in `classes`.

        The highest of a row names the class. Those of a calibrated network are probabilities, given that one
        of the classes is right; relation scores of another compare classes for one picture and are none.
        """
        if not len(images):
            return np.zeros((0, len(self.classes)))
        maps = self._embedded(images)
        at_once = max(1, _COMPARED_BYTES // self._network.compared_bytes(maps[0], len(self.classes)))
        raw = torch.cat([self._relate(some) for some in maps.split(at_once)]).double().cpu()
        calibration = self._network.calibration
        if calibration is None:
            return raw.sigmoid().numpy()
        return probabilities(raw, calibration.temperature(self._shots)).numpy()

    @property
    def calibrated(self) -> bool:
        """Whether scores are probabilities."""
        return self._network.calibration is not None

    def _relate(self, maps: Tensor) -> Tensor:
        """Relation scores [m, n] of maps [m, C, h, w]."""
        found = [self._network.relate(examples, maps[None])[0] for _, examples in self._groups]
        order = [column for columns, _ in self._groups for column in columns]
        return torch.cat(found, dim=1)[:, np.argsort(order)]

    def _embedded(self, images: Sequence[Pixels]) -> Tensor:
        """Maps [m, C, h, w] of images."""
        size = self._network.test_size
        pixels = torch.from_numpy(np.stack([resize_square(each, size) for each in images])).movedim(-1, -3)
        some = (each.to(self._device) for each in pixels.split(_IMAGES_AT_ONCE))
        return torch.cat([self._network.embed(prepare(each, size)) for each in some])
