"""Episodes per second of every backend, of the study's method, of easyfsl, and of a plain copy of the bytes.

5-way 1-shot. JPEG files are as large as the network's input (as those of miniImageNet are at 84 pixels), so
nobody resizes; 64 classes of 60. The packed sets hold random pixels: 38,400 images at 84 pixels as
miniImageNet's training split does, and a tenth at 224 (all would take 5.8 GB). Batches are smaller at 224
pixels: each worker keeps 2 ready, and all sides must fit into memory together. The study's method delivers
normalised floats, ours uint8 that are normalised on the training device; so `packed` and `resident` are also
measured up to that point. The plain copy is one thread's, from memory that no cache holds; all others may use
all cores, in threads or in worker processes.

Memory is the peak of the process tree above the same process without a loader. It counts the pages of the
packed file that a side has mapped, divided by the sides that have mapped them.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks import feeds
from benchmarks.images import CLASSES, pack_noise, pack_photos, photos_by_class, write_photos
from benchmarks.outcome import Cell, Outcome, Table, median_of, ratio_of
from benchmarks.turns import BLOCKS, Block, Side, Turns
from benchmarks.workload import PREFETCH, Workload, device
from parashot.questions.statistics import Interval
from parashot.questions.text import counted

STUDY, EASYFSL, COPY = "the study's method", "easyfsl", "plain copy of the bytes"
UINT8 = "uint8"
NOT_INSTALLED = 'not installed: pip install -e ".[peers]" -c constraints.txt'

_SHAPES = tuple(Workload("conv4", *shape) for shape in ((84, 1, 16), (84, 15, 4), (224, 1, 8), (224, 15, 1)))
_QUICK_SHAPES = (Workload("conv4", 24, 1, 4),)
_PACKED_IMAGES = {84: 38_400, 224: 3_840, 24: 1_280}
"""Images of a packed set by size in pixels."""

_OTHERS = (("packed", 1), ("packed", 2), ("jpeg", 0), ("jpeg", 1), ("jpeg", 2), ("jpeg", 4))
"""Further backends and workers of ours."""

_IMPORTS = {STUDY: ("torchvision",), EASYFSL: ("torchvision", "easyfsl.samplers")}
"""Large packages that count as memory of a loader no more than torch does."""


@dataclass(frozen=True)
class Entry:
    """One row: the loader, its worker processes, and what arrives; `side` is None where it cannot run."""

    loader: str
    workers: int
    delivers: str
    side: Side | None = None

    @property
    def name(self) -> str:
        """Name of its side."""
        return f"{self.loader}, {counted(self.workers, 'worker')}, {self.delivers}"


def run(quick: bool) -> Outcome:
    """Measure all shapes; each shape is one interleaved run."""
    measured: list[Measured] = []
    photo_bytes: dict[str, int] = {}
    shapes = _QUICK_SHAPES if quick else _SHAPES
    for size in dict.fromkeys(shape.image_size for shape in shapes):
        with tempfile.TemporaryDirectory(prefix="parashot-") as folder:
            home = Path(folder)
            write_sets(home, size, quick)
            files = [path for each in photos_by_class(home / "photos") for path in each]
            photo_bytes[f"{size} px"] = round(statistics.fmean(path.stat().st_size for path in files))
            for shape in shapes:
                if shape.image_size == size:
                    rows = [*compared_entries(home, shape, quick), *other_entries(home, shape, quick)]
                    measured.append(_measure(rows, shape, memory=True))
    return Outcome(
        "loader",
        [*map(_rates, measured), _summary(measured)],
        raw={each.shape.shape: dict(each.seconds) for each in measured},
        settings={
            "blocks": BLOCKS,
            "block_seconds": feeds.block_seconds(quick),
            "prefetch": PREFETCH,
            "photos": CLASSES * _photos_per_class(quick),
            "mean_photo_bytes": photo_bytes,
            "packed_images": {size: _PACKED_IMAGES[int(size.split()[0])] for size in photo_bytes},
        },
    )


def measure_compared(quick: bool) -> Measured:
    """Measure the sides that `Measured.ratios` needs, at 84 pixels and 1 query per class."""
    shape = (_QUICK_SHAPES if quick else _SHAPES)[0]
    with tempfile.TemporaryDirectory(prefix="parashot-") as folder:
        write_sets(Path(folder), shape.image_size, quick)
        return _measure(compared_entries(Path(folder), shape, quick), shape, memory=False)


# --- entries --------------------------------------------------------------------------------------------


def write_sets(home: Path, size: int, quick: bool) -> None:
    """Write the images of one size: JPEG files, the same bytes packed, and packed pixels."""
    write_photos(home / "photos", _photos_per_class(quick), size)
    pack_photos(home / "photos", home / "encoded")
    pack_noise(home / "pixels", _PACKED_IMAGES[size], size)


def compared_entries(home: Path, shape: Workload, quick: bool) -> list[Entry]:
    """Entries that `Measured.ratios` needs."""
    here, pixels = device().type, {"packed": home / "pixels"}
    entries = [_entry(COPY, 0, UINT8, feeds.plain_copy, shape, quick, {})]
    for floats, backend in product((False, True), ("packed", "resident")):
        extra = {
            **pixels,
            "backend": backend,
            "workers": 0,
            "floats": floats,
            "device": here if floats else "cpu",
        }
        delivers = _floats(here) if floats else UINT8
        entries.append(_entry(backend, 0, delivers, feeds.ours, shape, quick, extra))
    for place, workers in product(dict.fromkeys(("cpu", here)), (0, 1) if quick else (0, 1, 2, 4)):
        extra = {"photos": home / "photos", "workers": workers, "device": place}
        entries.append(_entry(STUDY, workers, _floats(place), feeds.study, shape, quick, extra))
    return entries


def other_entries(home: Path, shape: Workload, quick: bool) -> list[Entry]:
    """Further backends and workers of ours, and easyfsl."""
    entries = []
    for backend, workers in _OTHERS[:1] if quick else _OTHERS:
        packed, delivers = ("encoded", _floats("cpu")) if backend == "jpeg" else ("pixels", UINT8)
        extra = {"packed": home / packed, "backend": backend, "workers": workers}
        entries.append(_entry(backend, workers, delivers, feeds.ours, shape, quick, extra))
    for workers in (0,) if quick else (0, 2):
        extra = {"photos": home / "photos", "workers": workers}
        if find_spec("easyfsl") is None:
            entries.append(Entry(EASYFSL, workers, NOT_INSTALLED))
        else:
            entries.append(_entry(EASYFSL, workers, _floats("cpu"), feeds.easyfsl, shape, quick, extra))
    return entries


def _entry(
    loader: str,
    workers: int,
    delivers: str,
    make: Callable[..., Block],
    shape: Workload,
    quick: bool,
    arguments: Mapping[str, Any],
) -> Entry:
    entry = Entry(loader, workers, delivers)
    common = {"shape": shape, "block_seconds": feeds.block_seconds(quick)}
    side = Side(entry.name, make, {**common, **arguments}, ("torch", *_IMPORTS.get(loader, ())))
    return Entry(loader, workers, delivers, side)


def _photos_per_class(quick: bool) -> int:
    return 4 if quick else 60


def _floats(place: str) -> str:
    return f"floats, {place}"


# --- results --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """Seconds per episode of one shape by side, item i of all of round i; peak bytes where asked for."""

    shape: Workload
    entries: Sequence[Entry]
    seconds: Mapping[str, Sequence[float]]
    memory: Mapping[str, int]

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


def _measure(entries: Sequence[Entry], shape: Workload, memory: bool) -> Measured:
    with Turns([each.side for each in entries if each.side is not None]) as turns:
        seconds = turns.seconds()
        return Measured(shape, entries, seconds, turns.peak_memory() if memory else {})


def _rates(measured: Measured) -> Table:
    columns = ["loader", "workers", "delivers", "episodes/s", "share of plain copy", "peak memory, MiB"]
    copied = measured.seconds[measured.entries[0].name]
    rows: list[list[Cell]] = []
    for entry in measured.entries:
        figures: list[Cell] = [None, None, None]
        if seconds := measured.seconds.get(entry.name):
            memory = measured.memory[entry.name] / 2**20
            figures = [median_of(seconds).reciprocal(), ratio_of(copied, seconds), memory]
        is_best = entry.loader == STUDY and entry is measured.best_of_study(entry.delivers)
        name = f"{entry.loader} (best)" if is_best else entry.loader
        rows.append([name, entry.workers, entry.delivers, *figures])
    return Table(f"loader: {measured.shape.shape}", columns, rows)


def _summary(measured: Sequence[Measured]) -> Table:
    compared = {
        "study": "packed, uint8 / study at its best",
        "study_floats": "packed, floats on device / study at its best",
        "copy": "packed, uint8 / plain copy",
        "resident_copy": "resident, uint8 / plain copy",
    }
    rows: list[list[Cell]] = []
    for each in measured:
        ratios = each.ratios()
        best = each.best_of_study(_floats("cpu")).workers
        rows.append([each.shape.shape, best, *(ratios[name] for name in compared)])
    columns = ["shape", "study's best workers", *compared.values()]
    return Table("loader: how many times as many episodes/s", columns, rows)
