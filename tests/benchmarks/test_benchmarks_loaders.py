"""Loaders compared: peers deliver what they should, and sides give numbers that hold up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_data import IMAGES, pack_colours

from benchmarks import images, loader
from benchmarks.feeds import our_batches
from benchmarks.peers.study_loader import study_loader
from benchmarks.workload import Workload
from parashot.data.episodes import draw_rows
from parashot.data.packed import PackedSplit
from parashot.errors import DeviceError
from parashot.params import EpisodeSpec

SIZE = 20
SPEC = EpisodeSpec(n_way=5, k_shot=1, k_query=2)
SHAPE = Workload("conv4", SIZE, k_query=2, batchsz=3)
PER_CLASS = 4
MEAN, STD = (torch.tensor(each).view(3, 1, 1) for each in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sets") / "photos"
    images.write_photos(folder, PER_CLASS, SIZE)
    return folder


def pillow_pixels(path: Path, size: int) -> torch.Tensor:
    """Pixels as Pillow decodes and resizes them, normalised: float32 [3, size, size]."""
    with Image.open(path) as image:
        resized = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
    pixels = torch.from_numpy(np.asarray(resized).copy()).movedim(-1, 0)
    return (pixels / 255 - MEAN) / STD


def test_packed_noise_is_whole_and_without_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "_BLOCK_BYTES", 100_000)  # several, the last one cut off
    images.pack_noise(noise := tmp_path / "pixels", 320, SIZE)
    split = PackedSplit(noise, "train")
    assert split.images.shape == (320, SIZE, SIZE, 3)
    assert split.class_sizes.sum() == 320
    assert split.images.std(axis=(1, 2, 3)).min() > 60  # of uniform bytes it is 74
    file = (noise / "train.images.npy").stat()
    assert file.st_blocks * 512 >= images.packed_bytes(320, SIZE)


@pytest.mark.parametrize("size", [SIZE, 32], ids=["as it is", "resized"])
def test_the_study_delivers_pillows_pixels_of_our_episodes(photos: Path, size: int) -> None:
    support, query = next(study_loader(photos, SPEC, size, 3, workers=0, prefetch=2))
    assert support.shape == (3, 5, 1, 3, size, size)
    assert query.shape == (3, 10, 3, size, size)
    files = [path for home in images.photos_by_class(photos) for path in home]
    rows = draw_rows(0, "train", np.arange(3), np.full(images.CLASSES, PER_CLASS), SPEC)
    for episode, classes in enumerate(rows):
        for place, each in enumerate(classes):
            first, *others = (pillow_pixels(files[row], size) for row in each)
            torch.testing.assert_close(support[episode, place, 0], first)
            torch.testing.assert_close(query[episode, 2 * place : 2 * place + 2], torch.stack(others))


def test_study_and_jpeg_backend_read_the_same(tmp_path: Path) -> None:
    split = PackedSplit(pack_colours(tmp_path, {"train": "abcdef", "val": "v", "test": "t"}, SIZE), "train")
    rows = iter(range(split.manifest.images))
    for label in split.manifest.classes:
        (home := tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(IMAGES):
            (home / f"{number}.jpg").write_bytes(split.encoded(next(rows)))
    ours = next(our_batches(split, SHAPE, "jpeg"))
    support, query = next(study_loader(tmp_path / "photos", SPEC, SIZE, 3, workers=0, prefetch=2))
    torch.testing.assert_close(ours.data[:2], (support, query))


def test_ratios_are_of_the_studys_best() -> None:
    study = [f"{loader.study_side('cpu')}, {workers} workers" for workers in (0, 2)]
    sides = dict(zip((loader.COPY, loader.PACKED, loader.FLOATS, *study), (1, 2, 4, 80, 40), strict=True))
    measured = {name: [seconds] * 3 for name, seconds in sides.items()}
    ratios = {key: ratio.value for key, ratio in loader.ratios(measured).items()}
    assert ratios == pytest.approx({"study": 20, "study_floats": 10, "copy": 0.5})


def test_a_set_without_room_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match=r"^1,000,000,000,000 images: larger than the memory that is free"):
        loader.measure_growth(10**12, quick=True)
    monkeypatch.setattr(loader, "FREE_BYTES", 10**18)
    with pytest.raises(DeviceError, match=r"1,280 images need .* of disk"):
        loader.measure_growth(1_280, quick=True)
