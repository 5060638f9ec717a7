"""How long a study with these params takes on this machine, and how much disk, before it is begun.

A few steps are timed; the rest is counting what each stage will do. Meant to tell minutes from hours.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from parashot.data.batches import Batch
from parashot.data.episodes import EpisodeSpec
from parashot.data.images import decode, encode_jpeg, resize_square
from parashot.errors import DataError
from parashot.model.network import build_network
from parashot.parallel.abilities import precisions
from parashot.parallel.context import Context, place, process_context
from parashot.params import IMAGES_PER_CLASS, SPLIT_CLASSES, Params, Precision
from parashot.questions.loader.measure import worker_counts
from parashot.questions.timed import TimedStrategy
from parashot.train.assemble import new_strategy

_STAGES = 13
"""Stages that start at least one process of their own."""

_BENCH_BESIDE = 2.0
"""strategy-bench beside its blocks: pairings, memory trades, inputs of the cost model, the profiler."""

_JPEG_BYTES_PER_PIXEL = 0.5
_MINIIMAGENET_BYTES = 250e6
_SAMPLED_IMAGES = 20


@dataclass(frozen=True)
class Pace:
    """Seconds that single things take here; an episode's are those of one replica."""

    training_episode: float
    test_episode: float
    decoded_image: float
    started_process: float  # until torch is imported
    replicas: int


def measure_pace(params: Params) -> Pace:
    """Time a step, an evaluated episode, a decoded image and the start of a process, some seconds in all.

    Raises `DeviceError` where the device that params ask for is not there.
    """
    started = _seconds(_start_process)
    placement = place(params.parallel)
    with process_context(placement) as context:
        asked = params.train.precision
        open_ones = precisions(placement.device_type) if asked == "auto" else [asked]
        training = min(_training_seconds(params, each, context) for each in open_ones)
        test = _test_seconds(params, context.device)
    return Pace(training, test, _decoding_seconds(params), started, placement.replicas)


def stage_seconds(params: Params, pace: Pace) -> dict[str, float]:
    """Seconds of each part of a study from nothing, by name."""
    names = [name for name in params.parallel.strategies if not params.parallel.switched_off(name)]
    spread = {name: pace.replicas if name != "serial" else 1 for name in names}
    train, bench, sizes = params.train, params.parallel.bench, params.batchsz_study
    alone, together = pace.training_episode, pace.training_episode / pace.replicas
    validations = train.episodes / train.batchsz / train.validate_every * train.val_episodes
    evaluated = (validations + params.evaluate.val_episodes) * pace.test_episode
    rounds = (bench.blocks + bench.warmup_steps) * bench.steps * train.batchsz
    sized = len(sizes.sizes) * (sizes.episodes + 2 * (sizes.blocks + 1) * sizes.block_episodes)
    seconds = {
        "starting processes": pace.started_process * (_STAGES + 2 * len(names)),
        "loader-bench": _loader_seconds(params, pace),
        "tune": 6 * (bench.blocks + bench.warmup_steps) * max(1, train.batchsz // pace.replicas) * alone,
        "strategy-bench": (1 + _BENCH_BESIDE)
        * rounds
        * (together + sum(alone / spread[each] for each in names)),
        "trainings": sum((train.episodes * alone + evaluated) / spread[each] for each in names),
        "batchsz": sized * together,
        "evaluate": params.evaluate.test_episodes * pace.test_episode,
    }
    if params.pretrain.epochs:
        seconds["pretraining"] = _pretraining_seconds(params, pace)
    if params.warmup_study.enabled:
        study = params.warmup_study
        seconds["warmup"] = 2 * len(study.sizes) * study.seeds * study.episodes * together
    if params.seeds_study.enabled:
        seconds["further seeds"] = (params.seeds_study.seeds - 1) * seconds["trainings"]
    return seconds


def _pretraining_seconds(params: Params, pace: Pace) -> float:
    """Every image as long as one of an episode, its head included, on all cores together."""
    pretrain = params.pretrain
    per_class = IMAGES_PER_CLASS
    if params.data.source == "synthetic":
        per_class = params.data.synthetic.images_per_class
    image = pace.training_episode / _spec(params).images / pace.replicas
    smaller = 1 - (pretrain.small_size / params.model.image_size) ** 2
    shrunk = 1 - pretrain.small_share * max(smaller, 0.0)
    return pretrain.epochs * SPLIT_CLASSES["train"] * per_class * image * shrunk


def study_bytes(params: Params, root: Path) -> int:
    """Bytes that raw and packed images take; what DVC keeps beside them shares their blocks where it can."""
    pixels = params.data.pack_size**2
    images, encoded = sum(SPLIT_CLASSES.values()) * IMAGES_PER_CLASS, _MINIIMAGENET_BYTES
    if params.data.source == "synthetic":
        pixels = params.data.synthetic.image_size**2
        images = sum(SPLIT_CLASSES.values()) * params.data.synthetic.images_per_class
        encoded = images * pixels * _JPEG_BYTES_PER_PIXEL
    elif params.data.source == "folder" and params.data.archive:
        place = root / params.data.archive
        files = [each for each in [place, *sorted(place.rglob("*"))] if each.is_file()]
        images, encoded = len(files), float(sum(each.stat().st_size for each in files))
        pixels = _common_pixels(files) or pixels
    return int(2 * encoded + images * pixels * 3)


def _common_pixels(files: Sequence[Path]) -> int | None:
    """Pixels of an image where all of a sample have one size, which packing then keeps."""
    sizes = set()
    for file in files[:: max(1, len(files) // _SAMPLED_IMAGES)]:
        try:
            sizes.add(decode(file.read_bytes()).shape[:2])
        except DataError:
            continue
    return math.prod(sizes.pop()) if len(sizes) == 1 else None


def _loader_seconds(params: Params, pace: Pace) -> float:
    """Decoding is what takes long; workers must start in every round, and share the cores."""
    bench = params.loader.bench
    images = bench.batchsz * _spec(params).images
    total = 0.0
    for backend in bench.backends:
        for workers in worker_counts(params, backend):
            decoding = bench.batches * images * pace.decoded_image if backend == "jpeg" else 0.0
            total += decoding / max(1, min(workers, pace.replicas)) + 0.1 * workers
    return (bench.blocks + 1) * total


def _training_seconds(params: Params, precision: Precision, context: Context) -> float:
    """Seconds per episode of a step of a replica's share of a batch."""
    settled = replace(params, train=replace(params.train, precision=precision, compile="none"))
    strategy = new_strategy("serial", settled, context)
    spec = _spec(params)
    episodes = max(1, min(4, params.train.batchsz // context.placement.replicas))
    timed = TimedStrategy(strategy, [_noise(spec, episodes, params)], context.placement.threads_per_replica)
    return _seconds(lambda: timed.seconds(1)) / episodes


def _spec(params: Params) -> EpisodeSpec:
    """The shape of a training episode."""
    return EpisodeSpec(params.episode.n_way, params.episode.k_shot, params.episode.k_query)


def _noise(spec: EpisodeSpec, episodes: int, params: Params) -> Batch:
    side = params.model.image_size
    pixels = torch.randint(256, (episodes * spec.images, side, side, 3), dtype=torch.uint8).movedim(-1, -3)
    supports = episodes * spec.n_way * spec.k_shot
    return Batch(
        pixels[:supports].unflatten(0, (episodes, spec.n_way, spec.k_shot)),
        pixels[supports:].unflatten(0, (episodes, -1)),
        torch.arange(episodes),
        episodes,
        1,
    )


@torch.inference_mode()
def _test_seconds(params: Params, device: torch.device) -> float:
    """Seconds of an evaluated episode whose images must all be embedded: an upper bound."""
    network = build_network(params.model, 0).eval().to(device)
    n, k, side = params.episode.n_way, params.episode.k_shot, params.model.image_size
    support = torch.zeros(1, n, k, 3, side, side, device=device)
    query = torch.zeros(1, n * params.evaluate.k_query, 3, side, side, device=device)
    return _seconds(lambda: network(support, query).cpu())


def _decoding_seconds(params: Params) -> float:
    side = params.data.synthetic.image_size if params.data.source == "synthetic" else params.data.pack_size
    data = encode_jpeg(np.random.default_rng(0).integers(0, 256, (side, side, 3)).astype(np.uint8))
    return _seconds(lambda: resize_square(decode(data), params.model.image_size))


def _start_process() -> None:
    subprocess.run([sys.executable, "-c", "import torch"], check=True)


def _seconds(work: Callable[[], object]) -> float:
    """The second time is the one that counts."""
    work()
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
