"""Loaders compared: what the peers deliver is what it should be, and small runs give numbers that hold up."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from parashot.data.batches import Plan
from PIL import Image, UnidentifiedImageError

from benchmarks import feeds, images, loader, scale
from benchmarks.feeds import Shape
from benchmarks.outcome import Outcome, Table
from benchmarks.peers.study_loader import study_loader
from benchmarks.turns import Side, Turns
from parashot.data.episodes import EpisodeSpec, draw_rows
from parashot.data.loaders import EpisodeDataset
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
    """What Pillow says the picture is, normalised: float32 [3, size, size]."""
    with Image.open(path) as image:
        resized = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
    pixels = torch.from_numpy(np.asarray(resized).copy()).movedim(-1, 0)
    return (pixels / 255 - MEAN) / STD


# --- sets ---------------------------------------------------------------------------------------------


def test_photos_are_real_jpegs_of_the_size_of_photos(tmp_path: Path) -> None:
    images.write_photos(tmp_path / "photos", 1, 84)
    files = [path for home in images.photos_by_class(tmp_path / "photos") for path in home]
    assert len({path.read_bytes() for path in files}) == len(files) == images.CLASSES
    assert 3_000 < np.mean([path.stat().st_size for path in files]) < 8_000
    with Image.open(files[0]) as image:
        assert (image.format, image.size) == ("JPEG", (84, 84))


def test_packed_photos_are_the_same_bytes(photos: Path, tmp_path: Path) -> None:
    images.pack_photos(photos, tmp_path / "encoded")
    split = PackedSplit(tmp_path / "encoded", "train")
    assert split.class_sizes.tolist() == [PER_CLASS] * images.CLASSES
    files = [path for home in images.photos_by_class(photos) for path in home]
    assert [split.encoded(row) for row in range(len(files))] == [path.read_bytes() for path in files]


def test_packed_noise_is_whole_and_without_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "_BLOCK_BYTES", 100_000)  # several blocks, the last one cut off
    images.pack_noise(tmp_path / "pixels", 256, SIZE)
    split = PackedSplit(tmp_path / "pixels", "train")
    assert split.images.shape == (256, SIZE, SIZE, 3)
    assert split.class_sizes.sum() == 256
    assert split.images.std(axis=(1, 2, 3)).min() > 60  # of uniform bytes it is 74
    file = (tmp_path / "pixels" / "train.images.npy").stat()
    assert file.st_blocks * 512 >= images.packed_bytes(256, SIZE)


# --- peers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [SIZE, 32], ids=["as it is", "resized"])
def test_the_study_delivers_pillows_pixels_of_our_episodes(photos: Path, size: int) -> None:
    support, query = next(study_loader(photos, SPEC, size, 3, workers=0, prefetch=2))
    assert support.shape == (3, 5, 1, 3, size, size)
    assert query.shape == (3, 10, 3, size, size)
    assert support.dtype == query.dtype == torch.float32
    files = [path for home in images.photos_by_class(photos) for path in home]
    rows = draw_rows(0, "train", np.arange(3), np.full(images.CLASSES, PER_CLASS), SPEC)
    for episode, classes in enumerate(rows):
        for place, each in enumerate(classes):
            first, *others = (pillow_pixels(files[row], size) for row in each)
            torch.testing.assert_close(support[episode, place, 0], first)
            torch.testing.assert_close(query[episode, 2 * place : 2 * place + 2], torch.stack(others))


def test_study_and_jpeg_backend_read_the_same(photos: Path, tmp_path: Path) -> None:
    images.pack_photos(photos, tmp_path / "encoded")
    ours = EpisodeDataset(PackedSplit(tmp_path / "encoded", "train"), SPEC, Plan(3, 3), 0, "jpeg", SIZE)[0]
    support, query = next(study_loader(photos, SPEC, SIZE, 3, workers=0, prefetch=2))
    torch.testing.assert_close(ours.support, support)
    torch.testing.assert_close(ours.query, query)


def test_workers_of_the_study_deliver_what_the_process_itself_does(photos: Path) -> None:
    alone, by_workers = (study_loader(photos, SPEC, SIZE, 2, workers, prefetch=2) for workers in (0, 1))
    for _ in range(2):
        for here, there in zip(next(alone), next(by_workers), strict=True):
            assert torch.equal(here, there)


def test_easyfsl_delivers_episodes_of_real_files(photos: Path) -> None:
    pytest.importorskip("easyfsl", reason="optional: the extra peers")
    from benchmarks.peers.easyfsl_loader import easyfsl_loader

    support, support_labels, query, query_labels, classes = next(
        easyfsl_loader(photos, SPEC, SIZE, workers=0, prefetch=2)
    )
    assert support.shape == (5, 3, SIZE, SIZE)
    assert query.shape == (10, 3, SIZE, SIZE)
    homes = images.photos_by_class(photos)
    for picture, label in [
        *zip(support, support_labels, strict=True),
        *zip(query, query_labels, strict=True),
    ]:
        same_class = [pillow_pixels(path, SIZE) for path in homes[classes[label]]]
        assert any(torch.allclose(picture, each, atol=1e-5) for each in same_class)


# --- sides --------------------------------------------------------------------------------------------


def test_a_side_that_fails_says_why_in_one_line(tmp_path: Path) -> None:
    arguments = {"shape": Shape(SIZE, 1, 2), "backend": "packed", "workers": 0, "block_seconds": 0.01}
    side = Side("packed", feeds.ours, {**arguments, "packed": tmp_path / "nowhere"})
    with (
        pytest.raises(DeviceError, match=r"'packed': DataError: .*manifest\.json: missing") as caught,
        Turns([side]),
    ):
        pass
    assert "\n" not in str(caught.value)


def test_a_picture_that_cannot_be_read_stops_the_study(tmp_path: Path) -> None:
    images.write_photos(tmp_path, PER_CLASS, SIZE)
    for path in tmp_path.glob("*/*.jpg"):
        path.write_bytes(b"not a picture")
    with pytest.raises(UnidentifiedImageError):
        feeds.study(tmp_path, Shape(SIZE, 1, 2), workers=0, block_seconds=0.01)


def test_a_loader_that_ends_too_early_is_an_error() -> None:
    with pytest.raises(DeviceError, match="came to its end"):
        feeds._take(iter(range(3)), 4)


# --- whole runs ---------------------------------------------------------------------------------------


def numbers(tables: Iterable[Table]) -> list[float]:
    """Every number of the tables; an interval's three must be in order."""
    found: list[float] = []
    for cell in (cell for table in tables for row in table.rows for cell in row):
        if isinstance(cell, Interval):
            assert cell.low <= cell.value <= cell.high
            found += [cell.low, cell.value, cell.high]
        elif isinstance(cell, float):
            found.append(cell)
    return found


def column(outcome: Outcome, table: int, name: str) -> list[object]:
    chosen = outcome.tables[table]
    return [row[list(chosen.columns).index(name)] for row in chosen.rows]


def running() -> set[psutil.Process]:
    """Processes below this one, but for multiprocessing's own tracker."""
    children = psutil.Process().children(recursive=True)
    return {each for each in children if "resource_tracker" not in " ".join(each.cmdline())}


@pytest.mark.slow
def test_quick_loader_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = running()
    outcome = loader.run(quick=True)
    assert list(tmp_path.iterdir()) == []
    _, alive = psutil.wait_procs(running() - before, timeout=10)
    assert alive == []
    rates = [cell for cell in column(outcome, 0, "episodes/s") if isinstance(cell, Interval)]
    assert len(rates) >= 8
    assert all(each.low > 0 and math.isfinite(each.high) for each in rates)
    assert all(map(math.isfinite, numbers(outcome.tables)))
    assert sum("(best)" in str(each) for each in column(outcome, 0, "loader")) == 1
    blocks = next(iter(outcome.raw.values()))
    assert {len(series) for series in blocks.values()} == {7}


def test_rows_of_easyfsl_say_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "find_spec", lambda name: None)
    sets = loader.Sets(tmp_path, tmp_path, tmp_path)
    entries = loader._Entries(loader.QUICK, sets, loader.QUICK.shapes[0]).all()
    easyfsl = [each for each in entries if each.loader == "easyfsl"]
    assert [(each.delivers, each.make) for each in easyfsl] == [(loader.NOT_INSTALLED, None)]


@pytest.mark.slow
def test_quick_scale_run() -> None:
    outcome = scale.run(quick=True)
    found = numbers(outcome.tables)
    assert found and all(0 < each < math.inf for each in found)
    assert column(outcome, 0, "images") == [640, 1_280]
    assert column(outcome, 1, "batchsz") == [1, 4]
    assert column(outcome, 2, "batchsz") == [1, 2]


def test_a_set_that_the_disk_lacks_room_for_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale, "FREE_BYTES", 10**18)
    with pytest.raises(DeviceError, match=r"1,280 images need .* of disk"):
        scale.scale_ratio(1_280, quick=True)


def test_a_set_that_does_not_fit_into_memory_is_not_called_warm() -> None:
    with pytest.raises(DeviceError, match=r"^1,000,000,000,000 images: larger than the memory that is free"):
        scale.scale_ratio(10**12, quick=True)
