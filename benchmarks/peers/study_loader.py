"""The study's method, in our own words: every image is opened, decoded and normalised when asked for.

An item is one episode. Its images are files; each goes through Pillow, RGB, resize, tensor and normalisation
by torchvision, and a plain `DataLoader` stacks episodes to batches.

    n n_way · k k_shot · q queries per episode (n_way * k_query, grouped by class)
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from benchmarks.images import photos_by_class
from parashot.data.episodes import draw_rows
from parashot.data.pixels import MEAN, STD
from parashot.params import EpisodeSpec

DRAWN = 10_000
"""Episodes drawn beforehand, as the study did for an epoch."""

Episode = tuple[torch.Tensor, torch.Tensor]


class StudyEpisodes(Dataset[Episode]):
    """Item i is episode i: support float32 [n, k, 3, h, w] and query [q, 3, h, w].

    After the last that was drawn, the first comes again.
    """

    def __init__(self, photos: Path, spec: EpisodeSpec, image_size: int) -> None:
        classes = photos_by_class(photos)
        self.paths = [str(path) for path in itertools.chain.from_iterable(classes)]
        sizes = np.array([len(each) for each in classes])
        self.rows = draw_rows(0, "train", np.arange(DRAWN), sizes, spec)
        self.k_shot = spec.k_shot
        resize = transforms.Resize((image_size, image_size))  # leaves images of this size as they are
        self.transform = transforms.Compose([resize, transforms.ToTensor(), transforms.Normalize(MEAN, STD)])

    def __len__(self) -> int:
        return 10**9  # no measurement comes to its end

    def __getitem__(self, index: int) -> Episode:
        rows = self.rows[index % DRAWN]
        support = torch.stack([self._images(each[: self.k_shot]) for each in rows])
        query = torch.cat([self._images(each[self.k_shot :]) for each in rows])
        return support, query

    def _images(self, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> torch.Tensor:
        return torch.stack([self._image(self.paths[row]) for row in rows])

    def _image(self, path: str) -> torch.Tensor:
        with Image.open(path) as image:
            pixels: torch.Tensor = self.transform(image.convert("RGB"))
        return pixels


def study_loader(
    photos: Path, spec: EpisodeSpec, image_size: int, batchsz: int, workers: int, prefetch: int
) -> Iterator[Episode]:
    """Batches without end: support [batchsz, n, k, 3, h, w] and query [batchsz, q, 3, h, w]."""
    with warnings.catch_warnings():
        # more workers than cores is what is measured here
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        return iter(
            DataLoader(
                StudyEpisodes(photos, spec, image_size),
                batch_size=batchsz,
                num_workers=workers,
                prefetch_factor=prefetch if workers else None,
            )
        )
