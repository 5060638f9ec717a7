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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks import feeds
from benchmarks.feeds import Shape
from benchmarks.images import CLASSES, pack_noise, pack_photos, photos_by_class, write_photos
from benchmarks.outcome import RESAMPLING, Cell, Outcome, Table
from benchmarks.turns import BLOCKS, Block, Side, Turns
from parashot.hardware import inspect_hardware
from parashot.questions.statistics import Interval, median_interval, ratio_interval
from parashot.questions.text import counted

STUDY, EASYFSL, COPY = "the study's method", "easyfsl", "plain copy of the bytes"
UINT8 = "uint8"
NOT_INSTALLED = 'not installed: pip install -e ".[peers]" -c constraints.txt'

IMPORTS = {STUDY: ("torchvision",), EASYFSL: ("torchvision", "easyfsl.samplers")}
"""Large packages that are not counted as memory of a loader, any more than torch is."""

IN_PROCESS = (("packed", 0), ("resident", 0))
"""Backends without worker processes, measured as delivered and up to normalised floats on the device."""


@dataclass(frozen=True)
class Scope:
    """What is measured, on how many images."""

    shapes: tuple[Shape, ...]
    packed_images: Mapping[int, int]  # by size in pixels
    photos_per_class: int
    block_seconds: float
    others: tuple[tuple[str, int], ...]  # further backends and workers of ours
    study_workers: tuple[int, ...]
    easyfsl_workers: tuple[int, ...]


FULL = Scope(
    shapes=(Shape(84, 1, 16), Shape(84, 15, 4), Shape(224, 1, 8), Shape(224, 15, 1)),
    packed_images={84: 38_400, 224: 3_840},
    photos_per_class=60,
    block_seconds=0.25,
    others=(("packed", 1), ("packed", 2), ("jpeg", 0), ("jpeg", 1), ("jpeg", 2), ("jpeg", 4)),
    study_workers=(0, 1, 2, 4),
    easyfsl_workers=(0, 2),
)
QUICK = Scope(
    shapes=(Shape(24, 1, 4),),
    packed_images={24: 1_280},
    photos_per_class=4,
    block_seconds=0.01,
    others=(("packed", 1),),
    study_workers=(0, 1),
    easyfsl_workers=(0,),
)

Seconds = Mapping[str, Sequence[float]]
"""Seconds per episode by side, item i of all from round i."""


@dataclass(frozen=True)
class Sets:
    """Where the images of one size lie: JPEG files, the same bytes packed, and packed pixels."""

    photos: Path
    encoded: Path
    pixels: Path


@dataclass(frozen=True)
class Entry:
    """One row: who loads, with how many worker processes, and what arrives."""

    loader: str
    workers: int
    delivers: str
    make: Callable[..., Block] | None = None  # None: cannot run here
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Of its side."""
        return f"{self.loader}, {counted(self.workers, 'worker')}, {self.delivers}"


@dataclass(frozen=True)
class Measured:
    """What one shape's sides took; `memory` is empty where it was not asked for."""

    shape: Shape
    entries: Sequence[Entry]
    seconds: Seconds
    memory: Mapping[str, int]

    def ratios(self) -> dict[str, Interval]:
        """How many times as fast ours is.

        `study`: `packed` as delivered against the study's method at its best worker count; `study_floats`:
        the same up to a normalised float batch on the training device; `copy` and `resident_copy`: `packed`
        and `resident` against the plain copy.
        """
        floats, (packed, resident) = _floats(_device()), (Entry(*each, UINT8).name for each in IN_PROCESS)
        copied = Entry(COPY, 0, UINT8).name
        pairs = {
            "study": (packed, self.best_of_study(_floats("cpu"))),
            "study_floats": (Entry(*IN_PROCESS[0], floats).name, self.best_of_study(floats)),
            "copy": (packed, copied),
            "resident_copy": (resident, copied),
        }
        return {  # seconds, so rates the other way round
            key: ratio_interval(self.seconds[other], self.seconds[ours], RESAMPLING)
            for key, (ours, other) in pairs.items()
        }

    def best_of_study(self, delivers: str) -> str:
        """Name of the study's side with the least median."""
        names = [each.name for each in self.entries if (each.loader, each.delivers) == (STUDY, delivers)]
        return min(names, key=lambda name: statistics.median(self.seconds[name]), default="")


def run(quick: bool) -> Outcome:
    """Measure all shapes; each shape is one interleaved run."""
    scope = QUICK if quick else FULL
    measured: list[Measured] = []
    photo_bytes: dict[str, int] = {}
    for size in dict.fromkeys(shape.size for shape in scope.shapes):
        with made_sets(scope, size) as sets:
            photo_bytes[f"{size} px"] = _mean_bytes(sets.photos)
            mine = [_Entries(scope, sets, shape) for shape in scope.shapes if shape.size == size]
            measured += [_measure(each.all(), each.shape, memory=True) for each in mine]
    return Outcome(
        "loader",
        [*map(_rates, measured), _summary(measured)],
        raw={_words(each.shape): dict(each.seconds) for each in measured},
        settings={
            "blocks": BLOCKS,
            "block_seconds": scope.block_seconds,
            "prefetch": feeds.PREFETCH,
            "photos": CLASSES * scope.photos_per_class,
            "mean_photo_bytes": photo_bytes,
            "packed_images": {f"{size} px": images for size, images in scope.packed_images.items()},
        },
    )


def measure_compared(quick: bool) -> Measured:
    """The sides that `Measured.ratios` needs, at 84 pixels and 1 query per class."""
    scope = QUICK if quick else FULL
    shape = scope.shapes[0]
    with made_sets(scope, shape.size) as sets:
        return _measure(_Entries(scope, sets, shape).compared(), shape, memory=False)


@contextmanager
def made_sets(scope: Scope, size: int) -> Iterator[Sets]:
    """The sets of one size in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="parashot-") as home:
        sets = Sets(*(Path(home) / name for name in ("photos", "encoded", "pixels")))
        write_photos(sets.photos, scope.photos_per_class, size)
        pack_photos(sets.photos, sets.encoded)
        pack_noise(sets.pixels, scope.packed_images[size], size)
        yield sets


class _Entries:
    """The rows of one shape."""

    def __init__(self, scope: Scope, sets: Sets, shape: Shape) -> None:
        self.scope = scope
        self.sets = sets
        self.shape = shape
        self.common = {"shape": shape, "block_seconds": scope.block_seconds}

    def all(self) -> list[Entry]:
        """Every row of the table."""
        others = [self._ours(*each) for each in self.scope.others]
        return [*self.compared(), *others, *map(self._easyfsl, self.scope.easyfsl_workers)]

    def compared(self) -> list[Entry]:
        """The rows that `Measured.ratios` needs."""
        devices = dict.fromkeys(("cpu", _device()))
        return [
            Entry(COPY, 0, UINT8, feeds.plain_copy, self.common),
            *(self._ours(*each) for each in IN_PROCESS),
            *(self._ours_as_floats(*each) for each in IN_PROCESS),
            *(self._study(workers, device) for device in devices for workers in self.scope.study_workers),
        ]

    def _ours(self, backend: str, workers: int) -> Entry:
        delivers = _floats("cpu") if backend == "jpeg" else UINT8
        packed = self.sets.encoded if backend == "jpeg" else self.sets.pixels
        arguments = {**self.common, "packed": packed, "backend": backend, "workers": workers}
        return Entry(backend, workers, delivers, feeds.ours, arguments)

    def _ours_as_floats(self, backend: str, workers: int) -> Entry:
        plain = self._ours(backend, workers)
        arguments = {**plain.arguments, "device": _device(), "floats": True}
        return replace(plain, delivers=_floats(_device()), arguments=arguments)

    def _study(self, workers: int, device: str) -> Entry:
        arguments = {**self.common, "photos": self.sets.photos, "workers": workers, "device": device}
        return Entry(STUDY, workers, _floats(device), feeds.study, arguments)

    def _easyfsl(self, workers: int) -> Entry:
        if find_spec("easyfsl") is None:
            return Entry(EASYFSL, workers, NOT_INSTALLED)
        arguments = {**self.common, "photos": self.sets.photos, "workers": workers}
        return Entry(EASYFSL, workers, _floats("cpu"), feeds.easyfsl, arguments)


def _measure(entries: Sequence[Entry], shape: Shape, memory: bool) -> Measured:
    sides = [
        Side(each.name, each.make, each.arguments, ("torch", *IMPORTS.get(each.loader, ())))
        for each in entries
        if each.make is not None
    ]
    with Turns(sides) as turns:
        seconds = turns.seconds()
        return Measured(shape, entries, seconds, turns.peak_memory() if memory else {})


# --- tables -------------------------------------------------------------------------------------------


def _rates(measured: Measured) -> Table:
    columns = ["loader", "workers", "delivers", "episodes/s", "share of plain copy", "peak memory, MiB"]
    return Table(
        f"loader: {_words(measured.shape)}", columns, [_row(measured, each) for each in measured.entries]
    )


def _row(measured: Measured, entry: Entry) -> list[Cell]:
    if entry.make is None:
        return [entry.loader, entry.workers, entry.delivers, None, None, None]
    seconds = measured.seconds[entry.name]
    copied = measured.seconds[Entry(COPY, 0, UINT8).name]
    best = " (best)" if entry.name == measured.best_of_study(entry.delivers) else ""
    return [
        entry.loader + best,
        entry.workers,
        entry.delivers,
        median_interval(seconds, RESAMPLING).reciprocal(),
        ratio_interval(copied, seconds, RESAMPLING),
        measured.memory[entry.name] / 2**20,
    ]


def _summary(measured: Sequence[Measured]) -> Table:
    compared = {
        "study": "packed, uint8 / study at its best",
        "study_floats": "packed, floats on device / study at its best",
        "copy": "packed, uint8 / plain copy",
        "resident_copy": "resident, uint8 / plain copy",
    }
    rows: list[list[Cell]] = []
    for each in measured:
        found = each.ratios()
        workers = next(row.workers for row in each.entries if row.name == each.best_of_study(_floats("cpu")))
        rows.append([_words(each.shape), workers, *(found[name] for name in compared)])
    columns = ["shape", "study's best workers", *compared.values()]
    return Table("loader: how many times as many episodes/s", columns, rows)


def _words(shape: Shape) -> str:
    return f"{shape.size} px, {counted(shape.k_query, 'query', 'queries')} per class, batchsz {shape.batchsz}"


def _floats(device: str) -> str:
    return f"floats, {device}"


def _device() -> str:
    """Where a training here would compute."""
    return "cuda" if inspect_hardware().gpus else "cpu"


def _mean_bytes(photos: Path) -> int:
    return round(statistics.fmean(path.stat().st_size for home in photos_by_class(photos) for path in home))
