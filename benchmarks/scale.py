"""How the loader scales with the images of a set and the episodes of a batch, and the step with its batchsz.

Loader: `packed`, no worker processes, 84 pixels, 5-way 1-shot with 1 query per class, all cores. Each number
of images is measured in turn with 38,400, from files of random bytes, each image read once before the clock
starts. Of a file larger than the memory, a part is read from the disk again, and a gather of random rows then
waits for it page after page, in as many threads as there are cores. Step: a whole training step of
Conv4 by the strategy `serial`, its inputs in memory as uint8, with all cores.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from benchmarks import feeds
from benchmarks.feeds import Shape
from benchmarks.images import pack_noise, packed_bytes
from benchmarks.outcome import RESAMPLING, Cell, Outcome, Table
from benchmarks.turns import BLOCKS, Block, Side, Turns
from parashot.errors import DeviceError
from parashot.params import Params, load_params
from parashot.questions.statistics import Interval, median_interval, ratio_interval
from parashot.questions.text import size as size_in_words

FREE_BYTES = 2 * 10**9
"""Disk that is left free beside a file."""

_PARAMS = Path(__file__).resolve().parents[1] / "params.yaml"
_BASE, _LARGE = "base", "large"


@dataclass(frozen=True)
class Scope:
    """What is measured."""

    size: int  # pixels
    base: int  # images that all others are compared with
    images: tuple[int, ...]
    episodes: tuple[int, ...]  # of a batch
    batchsz: tuple[int, ...]  # of a step
    block_seconds: float


FULL = Scope(
    size=84,
    base=38_400,
    images=(160_000, 640_000, 1_280_000),
    episodes=(1, 4, 16, 64, 256, 1_024, 4_096),
    batchsz=(1, 2, 4, 8, 16, 32),
    block_seconds=0.25,
)
QUICK = Scope(size=16, base=640, images=(1_280,), episodes=(1, 4), batchsz=(1, 2), block_seconds=0.01)


@dataclass(frozen=True)
class Growth:
    """A large set against the base, round by round; `private_bytes` is what each process has to itself."""

    images: int
    base_seconds: Sequence[float]  # per episode
    large_seconds: Sequence[float]
    base_private_bytes: int
    large_private_bytes: int

    @property
    def ratio(self) -> Interval:
        """Episodes/s of the large set over those of the base."""
        return ratio_interval(self.base_seconds, self.large_seconds, RESAMPLING)

    @property
    def added_private_bytes(self) -> int:
        """Private memory of the large set's process above that of the base's."""
        return self.large_private_bytes - self.base_private_bytes


def run(quick: bool) -> Outcome:
    """Measure all three; the files lie in a temporary folder, one large file at a time."""
    scope = QUICK if quick else FULL
    with tempfile.TemporaryDirectory(prefix="parashot-") as home:
        base = _packed(Path(home), scope.base, scope.size)
        grown: dict[int, Growth | str] = {}
        for images in scope.images:
            try:
                grown[images] = _grow(scope, base, images)
            except DeviceError as error:
                grown[images] = str(error)
        by_episodes = _by_episodes(scope, base)
        by_batchsz = _by_batchsz(scope, base)
    raw = {
        "images": {str(each.images): each.__dict__ for each in grown.values() if isinstance(each, Growth)},
        "episodes": {str(each): seconds for each, seconds in by_episodes.items()},
        "batchsz": {str(each): seconds for each, seconds in by_batchsz.items()},
    }
    tables = [
        _images_table(scope, grown),
        _episodes_table(scope, by_episodes),
        _steps_table(scope, by_batchsz),
    ]
    settings = {"blocks": BLOCKS, "block_seconds": scope.block_seconds, "base_images": scope.base}
    return Outcome("scale", tables, raw, settings)


def scale_ratio(images: int, quick: bool = False) -> Growth:
    """`images` against 38,400 in one interleaved run, both warm.

    Raises `DeviceError` where the disk or the memory has no room for them.
    """
    scope = QUICK if quick else FULL
    if remark := _remark(images, scope):
        raise DeviceError(f"{images:,} images: {remark}; end what else runs here, or ask for fewer")
    with tempfile.TemporaryDirectory(prefix="parashot-") as home:
        return _grow(scope, _packed(Path(home), scope.base, scope.size), images)


# --- images -------------------------------------------------------------------------------------------


def _grow(scope: Scope, base: Path, images: int) -> Growth:
    shape = Shape(scope.size, k_query=1, batchsz=16)
    with _large_set(base.parent, images, scope.size) as large:
        sides = [_loader_side(name, at, shape, scope) for name, at in ((_BASE, base), (_LARGE, large))]
        with Turns(sides) as turns:
            seconds, private = turns.seconds(), turns.private_memory()
    return Growth(images, seconds[_BASE], seconds[_LARGE], private[_BASE], private[_LARGE])


@contextmanager
def _large_set(home: Path, images: int, size: int) -> Iterator[Path]:
    """A packed set that is gone afterwards. Raises `DeviceError` where there is no room for it."""
    needed, free = packed_bytes(images, size) + FREE_BYTES, shutil.disk_usage(home).free
    if free < needed:
        raise DeviceError(
            f"{images:,} images need {size_in_words(needed)} of disk, {size_in_words(free)} are free; "
            "set TMPDIR to a larger one"
        )
    packed = _packed(home, images, size)
    try:
        yield packed
    finally:
        shutil.rmtree(packed)


def _packed(home: Path, images: int, size: int) -> Path:
    packed = home / str(images)
    pack_noise(packed, images, size)
    return packed


def _loader_side(name: str, packed: Path, shape: Shape, scope: Scope) -> Side:
    arguments = {"packed": packed, "shape": shape, "backend": "packed", "workers": 0, "warm": True}
    return Side(name, feeds.ours, {**arguments, "block_seconds": scope.block_seconds})


def _images_table(scope: Scope, grown: dict[int, Growth | str]) -> Table:
    columns = ["images", "size", "episodes/s", f"share of {scope.base:,}", "private memory, MiB", "remark"]
    rows: list[list[Cell]] = []
    for images, growth in grown.items():
        in_words = size_in_words(packed_bytes(images, scope.size))
        if isinstance(growth, str):
            rows.append([images, in_words, None, None, None, f"skipped: {growth}"])
            continue
        if not rows:
            words = size_in_words(packed_bytes(scope.base, scope.size))
            rows.append(
                [scope.base, words, _rate(growth.base_seconds), None, _mib(growth.base_private_bytes), ""]
            )
        private = _mib(growth.large_private_bytes)
        rows.append(
            [images, in_words, _rate(growth.large_seconds), growth.ratio, private, _remark(images, scope)]
        )
    return Table("scale: images of a set (packed, 0 workers, batchsz 16)", columns, rows)


def _remark(images: int, scope: Scope) -> str:
    """Said of a set that does not stay in memory; what the kernel keeps of other files counts as free."""
    fits = packed_bytes(images, scope.size) < psutil.virtual_memory().available
    return "" if fits else "larger than the memory that is free, so in part read from the disk again"


# --- episodes of a batch ------------------------------------------------------------------------------


def _by_episodes(scope: Scope, base: Path) -> dict[int, list[float]]:
    sides = [
        _loader_side(str(episodes), base, Shape(scope.size, k_query=1, batchsz=episodes), scope)
        for episodes in scope.episodes
    ]
    with Turns(sides) as turns:
        return {int(name): seconds for name, seconds in turns.seconds().items()}


def _episodes_table(scope: Scope, measured: dict[int, list[float]]) -> Table:
    rows: list[list[Cell]] = [[episodes, _rate(seconds)] for episodes, seconds in measured.items()]
    return Table(f"scale: episodes of a batch ({scope.base:,} images)", ["batchsz", "episodes/s"], rows)


# --- steps --------------------------------------------------------------------------------------------


def _by_batchsz(scope: Scope, base: Path) -> dict[int, list[float]]:
    common = {"packed": base, "size": scope.size, "block_seconds": scope.block_seconds}
    sides = [Side(str(batchsz), training_steps, {**common, "batchsz": batchsz}) for batchsz in scope.batchsz]
    with Turns(sides) as turns:
        return {int(name): seconds for name, seconds in turns.seconds().items()}


def training_steps(packed: Path, size: int, batchsz: int, block_seconds: float) -> Block:
    """Steps of Conv4 by `serial` with all cores; a block returns seconds per episode."""
    from parashot.parallel.allocator import keep_freed_memory
    from parashot.parallel.context import Context, place
    from parashot.questions.timed import TimedStrategy
    from parashot.train.assemble import new_strategy, ready_batches

    keep_freed_memory()
    params = _step_params(size, batchsz)
    context = Context(0, 1, 0, 1, place(params.parallel))
    strategy = new_strategy("serial", params, context)
    batches = ready_batches(params, packed, strategy, batchsz, steps=1)
    timed = TimedStrategy(strategy, batches, context.placement.threads_per_replica)
    timed.seconds(1)
    steps = max(1, math.ceil(block_seconds / timed.seconds(1)))
    return lambda: timed.seconds(steps) / (steps * batchsz)


def _step_params(size: int, batchsz: int) -> Params:
    """The default study's, with Conv4, one replica and 1 query per class."""
    params = load_params(_PARAMS)
    return replace(
        params,
        episode=replace(params.episode, n_way=5, k_shot=1, k_query=1),
        model=replace(params.model, embedding="conv4", image_size=size),
        train=replace(params.train, batchsz=batchsz, episodes=max(batchsz, params.train.episodes)),
        parallel=replace(params.parallel, replicas=1),
    )


def _steps_table(scope: Scope, measured: dict[int, list[float]]) -> Table:
    first = measured[scope.batchsz[0]]
    rows: list[list[Cell]] = [
        [batchsz, median_interval(seconds, RESAMPLING), ratio_interval(first, seconds, RESAMPLING)]
        for batchsz, seconds in measured.items()
    ]
    columns = ["batchsz", "seconds/episode", f"episodes/s over those of batchsz {scope.batchsz[0]}"]
    return Table(f"scale: training steps (conv4, {scope.size} px, serial)", columns, rows)


# --- cells --------------------------------------------------------------------------------------------


def _rate(seconds: Sequence[float]) -> Interval:
    return median_interval(seconds, RESAMPLING).reciprocal()


def _mib(count: int) -> float:
    return count / 2**20
