"""Growth of the loader with the images of a set and with the episodes of a batch.

`packed`, no worker processes, 84 pixels, 5-way 1-shot with 1 query per class, all cores. Each number of
images is measured in turn with 38,400, from files of random bytes, each image read once before the clock
starts. Of a file larger than the memory, a part is read from the disk again, and a gather of random rows then
waits for it page after page, in as many threads as there are cores.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from benchmarks import feeds
from benchmarks.images import pack_noise, packed_bytes
from benchmarks.outcome import Cell, Outcome, Table, median_of, ratio_of
from benchmarks.turns import BLOCKS, Side, Turns
from benchmarks.workload import Workload
from parashot.errors import DeviceError
from parashot.questions.statistics import Interval
from parashot.questions.text import size as size_in_words

FREE_BYTES = 2 * 10**9
"""Disk that is left free beside a file."""

_BASE, _LARGE = "base", "large"


@dataclass(frozen=True)
class Scope:
    """Extent of the measurement: image size in pixels, images of the base and of the sets compared with it,
    episodes of a batch.
    """

    size: int = 84
    base: int = 38_400
    images: tuple[int, ...] = (160_000, 640_000, 1_280_000)
    episodes: tuple[int, ...] = (1, 4, 16, 64, 256, 1_024, 4_096)
    quick: bool = False


FULL = Scope()
QUICK = Scope(16, 640, (1_280,), (1, 4), quick=True)


@dataclass(frozen=True)
class Growth:
    """A large set against the base: seconds per episode, item i of both of round i."""

    images: int
    base_seconds: Sequence[float]
    large_seconds: Sequence[float]
    added_private_bytes: float
    """Private memory of the large set's process above that of the base's."""

    @property
    def ratio(self) -> Interval:
        """Episodes/s of the large set over those of the base."""
        return ratio_of(self.base_seconds, self.large_seconds)


def run(quick: bool) -> Outcome:
    """Measure both; the files lie in a temporary folder, one large file at a time."""
    scope = QUICK if quick else FULL
    rows: list[list[Cell]] = []
    raw: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="parashot-") as folder:
        base = _pack_base(Path(folder), scope)
        for images in scope.images:
            said = size_in_words(packed_bytes(images, scope.size))
            try:
                growth = _grow(scope, base, images)
            except DeviceError as error:
                rows.append([images, said, None, None, None, f"skipped: {error}"])
                continue
            rate, added = median_of(growth.large_seconds).reciprocal(), growth.added_private_bytes / 2**20
            rows.append([images, said, rate, growth.ratio, added, _remark(images, scope)])
            raw[str(images)] = asdict(growth)
        with Turns([_side(str(each), base, each, scope) for each in scope.episodes]) as turns:
            by_episodes = turns.seconds()
    share = f"share of {scope.base:,} images'"
    columns = ["images", "size", "episodes/s", share, "more private memory, MiB", "remark"]
    rates = [(int(episodes), median_of(each).reciprocal()) for episodes, each in by_episodes.items()]
    title = f"scale: episodes of a batch ({scope.base:,} images)"
    tables = [
        Table("scale: images of a set (packed, 0 workers, batchsz 16)", columns, rows),
        Table(title, ("batchsz", "episodes/s"), rates),
    ]
    settings = {"blocks": BLOCKS, "block_seconds": feeds.block_seconds(quick), "base_images": scope.base}
    return Outcome("scale", tables, {"images": raw, "episodes": by_episodes}, settings)


def scale_ratio(images: int, quick: bool = False) -> Growth:
    """Measure `images` against 38,400 in one interleaved run, both warm.

    Raises `DeviceError` where the disk or the memory has no room for them.
    """
    scope = QUICK if quick else FULL
    if remark := _remark(images, scope):
        raise DeviceError(f"{images:,} images: {remark}; end what else runs here, or ask for fewer")
    with tempfile.TemporaryDirectory(prefix="parashot-") as folder:
        return _grow(scope, _pack_base(Path(folder), scope), images)


def _pack_base(home: Path, scope: Scope) -> Path:
    pack_noise(home / _BASE, scope.base, scope.size)
    return home / _BASE


def _grow(scope: Scope, base: Path, images: int) -> Growth:
    """Measure a large set, which is gone afterwards. Raises `DeviceError` without room on the disk."""
    needed, free = packed_bytes(images, scope.size) + FREE_BYTES, shutil.disk_usage(base).free
    if free < needed:
        raise DeviceError(
            f"{images:,} images need {size_in_words(needed)} of disk, {size_in_words(free)} are free; "
            "set TMPDIR to a larger one"
        )
    large = base.with_name(_LARGE)
    try:
        pack_noise(large, images, scope.size)
        with Turns([_side(each.name, each, 16, scope) for each in (base, large)]) as turns:
            seconds, private = turns.seconds(), turns.private_memory()
    finally:
        shutil.rmtree(large)
    return Growth(images, seconds[_BASE], seconds[_LARGE], private[_LARGE] - private[_BASE])


def _side(name: str, packed: Path, episodes: int, scope: Scope) -> Side:
    arguments = {
        "packed": packed,
        "shape": Workload("conv4", scope.size, 1, episodes),
        "loading": feeds.Loading("packed"),
        "warm": True,
        "block_seconds": feeds.block_seconds(scope.quick),
    }
    return Side(name, feeds.ours, arguments)


def _remark(images: int, scope: Scope) -> str:
    """Remark on a set that does not stay in memory; what the kernel keeps of other files counts as free."""
    fits = packed_bytes(images, scope.size) < psutil.virtual_memory().available
    return "" if fits else "larger than the memory that is free, so in part read from the disk again"
