"""Episodes per second of every backend, of the study's method, of easyfsl, and of a plain copy of the bytes.

5-way 1-shot. JPEG files are as large as the network's input (as those of miniImageNet are at 84 pixels), so
nobody resizes; 64 classes of 60. The packed sets hold random pixels: 38,400 images at 84 pixels as
miniImageNet's training split does, and a tenth at 224 (all would take 5.8 GB). Batches are smaller at 224
pixels: each worker keeps 2 ready, and all sides must fit into memory together. The study's method delivers
normalised floats, ours uint8 that are normalised on the training device; so `packed` and `resident` are also
measured up to that point. The plain copy is one thread's, from memory that no cache holds; all others may use
all cores, in threads or in worker processes.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks import feeds
from benchmarks.feeds import Loading
from benchmarks.images import CLASSES, pack_noise, pack_photos, write_photos
from benchmarks.outcome import Cell, Outcome, Table, median_of, ratio_of
from benchmarks.turns import BLOCKS, Block, Side, Turns
from benchmarks.workload import Workload, device
from parashot.data.episode_dataset import Backend
from parashot.questions.statistics import Interval
from parashot.questions.text import counted

STUDY, EASYFSL, COPY = "the study's method", "easyfsl", "plain copy of the bytes"
UINT8 = "uint8"
NOT_INSTALLED = 'not installed: pip install -e ".[peers]" -c constraints.txt'

_SHAPES = tuple(Workload("conv4", *shape) for shape in ((84, 1, 16), (84, 15, 4), (224, 1, 8), (224, 15, 1)))
_QUICK_SHAPES = (Workload("conv4", 24, 1, 4),)
_PACKED_IMAGES = {84: 38_400, 224: 3_840, 24: 1_280}
"""Images of a packed set by size in pixels."""

_FASTEST: tuple[Backend, ...] = ("packed", "resident")
_OTHERS = (*(Loading("packed", each) for each in (1, 2)), *(Loading("jpeg", each) for each in (0, 1, 2, 4)))
"""Further backends and workers of ours."""


@dataclass(frozen=True)
class Entry:
    """One row: the loader, its worker processes, and what arrives; without `make` it cannot run."""

    loader: str
    workers: int
    delivers: str
    make: Callable[..., Block] | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of its side."""
        return f"{self.loader}, {counted(self.workers, 'worker')}, {self.delivers}"


def run(quick: bool) -> Outcome:
    """Measure all shapes; each shape is one interleaved run."""
    measured: list[Measured] = []
    shapes = _QUICK_SHAPES if quick else _SHAPES
    for size in dict.fromkeys(shape.image_size for shape in shapes):
        with tempfile.TemporaryDirectory(prefix="parashot-") as folder:
            write_sets(Path(folder), size, quick)
            entries = [*compared_entries(Path(folder), quick), *other_entries(Path(folder), quick)]
            measured += [measure(entries, each, quick) for each in shapes if each.image_size == size]
    return Outcome(
        "loader",
        [*map(rates, measured), summary(measured)],
        raw={each.shape.shape: dict(each.seconds) for each in measured},
        settings={
            "blocks": BLOCKS,
            "block_seconds": feeds.block_seconds(quick),
            "prefetch": feeds.PREFETCH,
            "photos": CLASSES * _photos_per_class(quick),
        },
    )


def measure_compared(quick: bool) -> Measured:
    """Measure the sides that `Measured.ratios` needs, at 84 pixels and 1 query per class."""
    shape = (_QUICK_SHAPES if quick else _SHAPES)[0]
    with tempfile.TemporaryDirectory(prefix="parashot-") as folder:
        write_sets(Path(folder), shape.image_size, quick)
        return measure(compared_entries(Path(folder), quick), shape, quick)


# --- entries --------------------------------------------------------------------------------------------


def write_sets(home: Path, size: int, quick: bool) -> None:
    """Write the images of one size: JPEG files, the same bytes packed, and packed pixels."""
    write_photos(home / "photos", _photos_per_class(quick), size)
    pack_photos(home / "photos", home)
    pack_noise(home / "pixels", _PACKED_IMAGES[size], size)


def compared_entries(home: Path, quick: bool) -> list[Entry]:
    """Entries that `Measured.ratios` needs; the plain copy comes first."""
    here = device().type
    entries = [Entry(COPY, 0, UINT8, feeds.plain_copy)]
    entries += [_ours(home, Loading(each)) for each in _FASTEST]
    entries += [_ours(home, Loading(each, 0, here, floats=True)) for each in _FASTEST]
    for place, workers in product(dict.fromkeys(("cpu", here)), (0, 1) if quick else (0, 1, 2, 4)):
        arguments = {"photos": home / "photos", "workers": workers, "device": place}
        entries.append(Entry(STUDY, workers, _floats(place), feeds.study, arguments))
    return entries


def other_entries(home: Path, quick: bool) -> list[Entry]:
    """Further backends and workers of ours, and easyfsl."""
    entries = [_ours(home, each) for each in (_OTHERS[:1] if quick else _OTHERS)]
    for workers in (0,) if quick else (0, 2):
        if find_spec("easyfsl") is None:
            entries.append(Entry(EASYFSL, workers, NOT_INSTALLED))
        else:
            arguments = {"photos": home / "photos", "workers": workers}
            entries.append(Entry(EASYFSL, workers, _floats("cpu"), feeds.easyfsl, arguments))
    return entries


def _ours(home: Path, loading: Loading) -> Entry:
    jpeg = loading.backend == "jpeg"
    delivers = _floats(loading.device) if loading.floats or jpeg else UINT8
    arguments = {"packed": home / ("packed" if jpeg else "pixels"), "loading": loading}
    return Entry(loading.backend, loading.workers, delivers, feeds.ours, arguments)


def _photos_per_class(quick: bool) -> int:
    return 4 if quick else 60


def _floats(place: str) -> str:
    return f"floats, {place}"


# --- results --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """Seconds per episode of one shape by side, item i of all of round i."""

    shape: Workload
    entries: Sequence[Entry]
    seconds: Mapping[str, Sequence[float]]

    def ratios(self) -> dict[str, Interval]:
        """How many times as many episodes/s ours delivers.

        `study`: `packed` as delivered against the study's method at its best worker count; `study_floats`:
        the same up to a normalised float batch on the training device; `copy` and `resident_copy`: `packed`
        and `resident` against the plain copy.
        """
        floats = _floats(device().type)
        packed, resident, copy = (Entry(each, 0, UINT8).name for each in ("packed", "resident", COPY))
        pairs = {
            "study": (packed, self.best_of_study(_floats("cpu")).name),
            "study_floats": (Entry("packed", 0, floats).name, self.best_of_study(floats).name),
            "copy": (packed, copy),
            "resident_copy": (resident, copy),
        }
        return {key: ratio_of(self.seconds[other], self.seconds[own]) for key, (own, other) in pairs.items()}

    def best_of_study(self, delivers: str) -> Entry:
        """The study's entry with the least median."""
        entries = [each for each in self.entries if (each.loader, each.delivers) == (STUDY, delivers)]
        return min(entries, key=lambda each: statistics.median(self.seconds[each.name]))


def measure(entries: Sequence[Entry], shape: Workload, quick: bool) -> Measured:
    """Time all entries that can run in turn."""
    common = {"shape": shape, "block_seconds": feeds.block_seconds(quick)}
    sides = [Side(each.name, each.make, {**common, **each.arguments}) for each in entries if each.make]
    with Turns(sides) as turns:
        return Measured(shape, entries, turns.seconds())


def rates(measured: Measured) -> Table:
    """A row per loader of one shape."""
    copied = measured.seconds[measured.entries[0].name]
    rows: list[list[Cell]] = []
    for entry in measured.entries:
        seconds = measured.seconds.get(entry.name)
        figures = [median_of(seconds).reciprocal(), ratio_of(copied, seconds)] if seconds else [None, None]
        is_best = entry.loader == STUDY and entry is measured.best_of_study(entry.delivers)
        name = f"{entry.loader} (best)" if is_best else entry.loader
        rows.append([name, entry.workers, entry.delivers, *figures])
    columns = ("loader", "workers", "delivers", "episodes/s", "share of plain copy")
    return Table(f"loader: {measured.shape.shape}", columns, rows)


def summary(measured: Sequence[Measured]) -> Table:
    """The ratios of all shapes."""
    columns = (
        "shape",
        "study's best workers",
        "packed, uint8 / study at its best",
        "packed, floats on device / study at its best",
        "packed, uint8 / plain copy",
        "resident, uint8 / plain copy",
    )
    rows: list[list[Cell]] = [
        [each.shape.shape, each.best_of_study(_floats("cpu")).workers, *each.ratios().values()]
        for each in measured
    ]
    return Table("loader: how many times as many episodes/s", columns, rows)
