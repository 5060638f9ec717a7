"""Loaders compared: peers deliver what they should, and small runs give numbers that hold up."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from PIL import Image

from benchmarks import feeds, images, loader, scale
from benchmarks.outcome import Outcome
from benchmarks.peers.study_loader import study_loader
from benchmarks.turns import Side, Turns
from benchmarks.workload import Workload, loader_batches
from parashot.data.episodes import EpisodeSpec, draw_rows
from parashot.data.packed import PackedSplit
from parashot.errors import DeviceError
from parashot.questions.statistics import Interval

SIZE = 20
SPEC = EpisodeSpec(n_way=5, k_shot=1, k_query=2)
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


def test_photos_are_real_jpegs_of_the_size_of_photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "CLASSES", 2)
    images.write_photos(tmp_path / "photos", 2, 84)
    files = [path for home in images.photos_by_class(tmp_path / "photos") for path in home]
    assert len({path.read_bytes() for path in files}) == len(files) == 4
    assert 3_000 < np.mean([path.stat().st_size for path in files]) < 8_000
    with Image.open(files[0]) as image:
        assert (image.format, image.size) == ("JPEG", (84, 84))


def test_packed_noise_is_whole_and_without_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "_BLOCK_BYTES", 100_000)  # several blocks, the last one cut off
    images.pack_noise(tmp_path / "pixels", 256, SIZE)
    split = PackedSplit(tmp_path / "pixels", "train")
    assert split.images.shape == (256, SIZE, SIZE, 3)
    assert split.class_sizes.sum() == 256
    assert split.images.std(axis=(1, 2, 3)).min() > 60  # of uniform bytes it is 74
    file = (tmp_path / "pixels" / "train.images.npy").stat()
    assert file.st_blocks * 512 >= images.packed_bytes(256, SIZE)


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


def test_study_and_jpeg_backend_read_the_same(photos: Path, tmp_path: Path) -> None:
    images.pack_photos(photos, tmp_path / "encoded")
    ours = next(
        loader_batches(
            PackedSplit(tmp_path / "encoded", "train"), Workload("conv4", SIZE, 2, 3), "jpeg", workers=0
        )
    )
    support, query = next(study_loader(photos, SPEC, SIZE, 3, workers=0, prefetch=2))
    torch.testing.assert_close(ours.data[:2], (support, query))


def test_easyfsl_delivers_episodes_of_real_files(photos: Path) -> None:
    pytest.importorskip("easyfsl", reason="optional: the extra peers")
    from benchmarks.peers.easyfsl_loader import easyfsl_loader

    support, labels, query, query_labels, classes = next(easyfsl_loader(photos, SPEC, SIZE, 0, 2))
    assert support.shape == (5, 3, SIZE, SIZE)
    assert query.shape == (10, 3, SIZE, SIZE)
    homes = images.photos_by_class(photos)
    for picture, label in zip([*support, *query], [*labels, *query_labels], strict=True):
        same_class = [pillow_pixels(path, SIZE) for path in homes[classes[label]]]
        assert any(torch.allclose(picture, each, atol=1e-5) for each in same_class)


def test_a_block_is_seconds_per_episode(photos: Path, tmp_path: Path) -> None:
    images.pack_noise(tmp_path / "pixels", 640, SIZE)
    shape = Workload("conv4", SIZE, 1, 2)
    threads = torch.get_num_threads()
    blocks = [
        feeds.ours(tmp_path / "pixels", shape, "packed", 0, 0.01, floats=True, warm=True),
        feeds.study(photos, shape, workers=0, block_seconds=0.01),
        feeds.plain_copy(shape, block_seconds=0.001),
    ]
    torch.set_num_threads(threads)
    assert all(0 < block() < 10 for block in blocks)
    with pytest.raises(DeviceError, match="came to its end"):
        feeds._take(iter(range(3)), 4)


def test_rows_without_easyfsl_name_its_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "find_spec", lambda name: None)
    entries = loader.other_entries(tmp_path, Workload("conv4", 24, 1, 4), quick=True)
    easyfsl = [each for each in entries if each.loader == "easyfsl"]
    assert [(each.delivers, each.side) for each in easyfsl] == [(loader.NOT_INSTALLED, None)]


def test_ratios_are_of_the_studys_best() -> None:
    entries = [
        loader.Entry(*each)
        for each in (
            (loader.COPY, 0, loader.UINT8),
            ("packed", 0, loader.UINT8),
            ("resident", 0, loader.UINT8),
            ("packed", 0, "floats, cpu"),
            (loader.STUDY, 0, "floats, cpu"),
            (loader.STUDY, 2, "floats, cpu"),
        )
    ]
    seconds = {each.name: [taken] * 3 for each, taken in zip(entries, (1, 2, 1, 4, 80, 40), strict=True)}
    measured = loader.Measured(Workload("conv4", 24, 1, 4), entries, seconds, dict.fromkeys(seconds, 2**20))
    ratios = {key: ratio.value for key, ratio in measured.ratios().items()}
    assert ratios == {"study": 20, "study_floats": 10, "copy": 0.5, "resident_copy": 1}
    assert loader._summary([measured]).rows[0][1] == 2
    assert [row[0] for row in loader._rates(measured).rows][-1] == f"{loader.STUDY} (best)"


def test_a_set_without_room_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match=r"^1,000,000,000,000 images: larger than the memory that is free"):
        scale.scale_ratio(10**12, quick=True)
    monkeypatch.setattr(scale, "FREE_BYTES", 10**18)
    with pytest.raises(DeviceError, match=r"1,280 images need .* of disk"):
        scale.scale_ratio(1_280, quick=True)


# --- whole runs ---------------------------------------------------------------------------------------


def numbers(outcome: Outcome) -> list[float]:
    """Every number of the tables; an interval's three must be in order."""
    cells = [cell for table in outcome.tables for row in table.rows for cell in row]
    intervals = [cell for cell in cells if isinstance(cell, Interval)]
    assert all(0 < each.low <= each.value <= each.high < math.inf for each in intervals)
    return [each.value for each in intervals]


def column(outcome: Outcome, table: int, name: str) -> Sequence[object]:
    chosen = outcome.tables[table]
    return [row[list(chosen.columns).index(name)] for row in chosen.rows]


@pytest.mark.slow
def test_quick_loader_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    outcome = loader.run(quick=True)
    assert list(tmp_path.iterdir()) == []
    children = psutil.Process().children(recursive=True)
    running = [each for each in children if "resource_tracker" not in " ".join(each.cmdline())]
    assert psutil.wait_procs(running, timeout=10)[1] == []
    assert len(numbers(outcome)) >= 8
    assert {len(each) for each in next(iter(outcome.raw.values())).values()} == {7}


@pytest.mark.slow
def test_quick_scale_run() -> None:
    outcome = scale.run(quick=True)
    assert numbers(outcome)
    assert column(outcome, 0, "images") == [640, 1_280]
    assert column(outcome, 1, "batchsz") == [1, 4]
    assert column(outcome, 2, "batchsz") == [1, 2]


@pytest.mark.slow
def test_a_side_that_fails_is_one_line(tmp_path: Path) -> None:
    arguments = {
        "shape": Workload("conv4", SIZE, 1, 2),
        "backend": "packed",
        "workers": 0,
        "block_seconds": 0.01,
    }
    side = Side("packed", feeds.ours, {**arguments, "packed": tmp_path / "nowhere"})
    with pytest.raises(DeviceError, match=r"'packed': DataError: .*manifest\.json") as caught, Turns([side]):
        pass
    assert "\n" not in str(caught.value)
