"""Episodes per second of the packed loader, of the study's method, and of a plain copy of the bytes.

5-way 1-shot with 1 query per class, 16 episodes a batch, 84 pixels. JPEG files are as large as the network's
input, as those of miniImageNet are, so nobody resizes; 64 classes of 60. The packed set holds random pixels:
38,400 images, as miniImageNet's training split does. The study's method delivers normalised floats, ours
uint8 that are normalised on the training device; so `packed` is also measured up to that point. The plain
copy is one thread's, from memory that no cache holds; all others may use all cores, in threads or in worker
processes.

With more images, each image is read once before the clock starts. Of a file larger than the memory, a part is
read from the disk again, and a gather of random rows then waits for it page after page.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import psutil

from benchmarks import feeds
from benchmarks.images import pack_noise, packed_bytes, write_photos
from benchmarks.outcome import ratio_of
from benchmarks.turns import Block, Turns
from benchmarks.workload import Workload, device
from parashot.errors import DeviceError
from parashot.questions.statistics import Interval
from parashot.questions.text import counted
from parashot.questions.text import size as size_in_words

COPY, PACKED, FLOATS = "plain copy of the bytes", "packed, uint8", "packed, floats"

SHAPE, SMALL = Workload("conv4", 84, 1, 16), Workload("conv4", 24, 1, 4)
"""Of full and of quick runs."""

IMAGES, FEW_IMAGES = 38_400, 1_280
"""Of the packed set in full and in quick runs."""

FREE_BYTES = 2 * 10**9
"""Disk that is left free beside a file."""


Seconds = Mapping[str, Sequence[float]]
"""Per episode by side, item i of all of round i."""


def ratios(seconds: Seconds) -> dict[str, Interval]:
    """How many times as many episodes/s `packed` delivers.

    `study`: as delivered, against the study's method at its best worker count; `study_floats`: the same up to
    a normalised float batch on the training device; `copy`: against the plain copy.
    """
    pairs = {
        "study": (PACKED, _best_of_study(seconds, "cpu")),
        "study_floats": (FLOATS, _best_of_study(seconds, device().type)),
        "copy": (PACKED, COPY),
    }
    return {key: ratio_of(seconds[other], seconds[own]) for key, (own, other) in pairs.items()}


def _best_of_study(seconds: Seconds, place: str) -> str:
    """The side of the study's method on a device with the least median."""
    sides = [name for name in seconds if name.startswith(study_side(place))]
    return min(sides, key=lambda name: statistics.median(seconds[name]))


def measure_compared(quick: bool) -> Seconds:
    """Measure all sides in one interleaved run."""
    shape, images, per_class = (SMALL, FEW_IMAGES, 4) if quick else (SHAPE, IMAGES, 60)
    with tempfile.TemporaryDirectory(prefix="parashot-") as folder:
        photos, packed = Path(folder) / "photos", Path(folder) / "packed"
        write_photos(photos, per_class, shape.image_size)
        pack_noise(packed, images, shape.image_size)
        with Turns(_sides(photos, packed, shape, quick)) as turns:
            return turns.seconds()


def study_side(place: str) -> str:
    """How the names of the study's sides begin."""
    return f"the study's method, floats, {place}"


def _sides(photos: Path, packed: Path, shape: Workload, quick: bool) -> Mapping[str, Callable[[], Block]]:
    here, seconds = device().type, feeds.block_seconds(quick)
    sides = {
        COPY: partial(feeds.plain_copy, shape, seconds),
        PACKED: partial(feeds.ours, packed, shape, seconds),
        FLOATS: partial(feeds.ours, packed, shape, seconds, device=here),
    }
    for place, workers in product(dict.fromkeys(("cpu", here)), (0, 1) if quick else (0, 1, 2, 4)):
        name = f"{study_side(place)}, {counted(workers, 'worker')}"
        sides[name] = partial(feeds.study, photos, shape, seconds, workers, place)
    return sides


def measure_growth(images: int, quick: bool = False) -> tuple[Seconds, float]:
    """Measure a set of `images` against the usual one in one interleaved run, both warm.

    Sides are called by their numbers of images, the usual one first. Returns how many bytes of private memory
    the process of the large set has above that of the usual one as well.

    Raises `DeviceError` where the memory or the disk has no room for them.
    """
    base, shape = (FEW_IMAGES // 2, SMALL) if quick else (IMAGES, SHAPE)
    size = shape.image_size
    available = psutil.virtual_memory().available  # with what the kernel keeps of other files
    if packed_bytes(images, size) >= available:
        raise DeviceError(
            f"{images:,} images: larger than the memory that is free, so in part read from the disk again; "
            "end what else runs here, or ask for fewer"
        )
    with tempfile.TemporaryDirectory(prefix="parashot-") as folder:
        needed = packed_bytes(base + images, size) + FREE_BYTES
        free = shutil.disk_usage(folder).free
        if free < needed:
            raise DeviceError(
                f"{images:,} images need {size_in_words(needed)} of disk, {size_in_words(free)} are free; "
                "set TMPDIR to a larger one"
            )
        sides = {}
        for count in (base, images):
            packed = Path(folder) / f"{count}"
            pack_noise(packed, count, size)
            sides[f"{count:,}"] = partial(feeds.ours, packed, shape, feeds.block_seconds(quick), warm=True)
        with Turns(sides) as turns:
            seconds, private = turns.seconds(), [*turns.private_memory().values()]
    return seconds, private[1] - private[0]
