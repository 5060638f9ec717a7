"""How long a study with these params takes on this machine, and how much disk, before it is begun.

A few steps are timed; the rest is counting what each stage will do. Meant to tell minutes from hours.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from parashot.data.images import decode, encode_jpeg, resize_square
from parashot.model.network import build_network
from parashot.parallel.abilities import precisions
from parashot.parallel.context import Placement
from parashot.params import IMAGES_PER_CLASS, SPLIT_CLASSES, EpisodeParams, Params, StrategyBenchParams

_STAGES = 14
"""Stages that start at least one process of their own."""

_BENCH_BESIDE = 2.0
"""strategy-bench beside its blocks: pairings, memory trades, inputs of the cost model, the profiler."""

_WORKER_COUNTS = 7  # of `loader.bench.workers: auto`
_LOADING_WAYS = 7  # backends and workers with which steps are trained
_STARTED_WORKERS = 0.2
"""Seconds until a loader's workers have brought their first batch."""

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


def measure_pace(params: Params, placement: Placement) -> Pace:
    """Time a step, an evaluated episode, a decoded image and the start of a process, some seconds in all."""
    device, asked = torch.device(placement.device_type), params.train.precision
    able = precisions(placement.device_type) if asked == "auto" else [asked]
    side = params.data.synthetic.image_size if params.data.source == "synthetic" else params.data.pack_size
    encoded = encode_jpeg(np.random.default_rng(0).integers(0, 256, (side, side, 3)).astype(np.uint8))
    threads = torch.get_num_threads()
    torch.set_num_threads(placement.threads_per_replica)
    try:
        training = min(_training_seconds(params, device, each == "bf16") for each in able)
        test = _test_seconds(params, device)
    finally:
        torch.set_num_threads(threads)
    started = _seconds(lambda: subprocess.run([sys.executable, "-c", "import torch"], check=True))
    decoded = _seconds(lambda: resize_square(decode(encoded), params.model.image_size))
    return Pace(training, test, decoded, started, placement.replicas)


def stage_seconds(params: Params, pace: Pace) -> dict[str, float]:
    """Seconds of each part of a study from nothing, by name."""
    names = [name for name in params.parallel.strategies if not params.parallel.switched_off(name)]
    spread = {name: pace.replicas if name != "serial" else 1 for name in names}
    train, bench, sizes = params.train, params.parallel.bench, params.batchsz_study
    alone, together = pace.training_episode, pace.training_episode / pace.replicas
    share = max(1, train.batchsz // pace.replicas) * alone
    validations = train.episodes / train.batchsz / train.validate_every * train.val_episodes
    evaluated = (validations + params.evaluate.val_episodes) * pace.test_episode
    rounds = bench.blocks + bench.warmup_steps
    steps_with_loading = bench.blocks * (
        _STARTED_WORKERS + train.batchsz * together + _block_seconds(bench, train.batchsz * together)
    )
    sized = sizes.episodes * together
    sized += 2 * (sizes.blocks + 1) * max(sizes.block_seconds, sizes.block_episodes * together)
    seconds = {
        "starting processes": pace.started_process * (_STAGES + 2 * len(names)),
        "loader-bench": _loader_seconds(params, pace) + _LOADING_WAYS * steps_with_loading,
        "tune": 6 * (bench.blocks * max(bench.seconds, share) + bench.warmup_steps * share),
        "strategy-bench": (1 + _BENCH_BESIDE)
        * rounds
        * sum(
            _block_seconds(bench, train.batchsz * each)
            for each in (together, *(alone / spread[name] for name in names))
        ),
        "gain": (1 + pace.replicas) * steps_with_loading,
        "trainings": sum((train.episodes * alone + evaluated) / spread[each] for each in names),
        "batchsz": len(sizes.sizes) * (sized + sizes.seeds * sizes.seconds),
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


def _block_seconds(bench: StrategyBenchParams, step: float) -> float:
    return max(bench.seconds, bench.steps * step)


def study_bytes(params: Params, root: Path) -> int:
    """Bytes that raw and packed images take; what DVC keeps beside them shares their blocks where it can."""
    data, pixels = params.data, params.data.pack_size**2
    images, encoded = sum(SPLIT_CLASSES.values()) * IMAGES_PER_CLASS, _MINIIMAGENET_BYTES
    if data.source == "synthetic":
        pixels = data.synthetic.image_size**2
        images = sum(SPLIT_CLASSES.values()) * data.synthetic.images_per_class
        encoded = images * pixels * _JPEG_BYTES_PER_PIXEL
    elif data.source == "folder" and data.archive:
        folder = root / Path(data.archive).expanduser()
        files = [each for each in sorted(folder.rglob("*")) if each.is_file()]
        images, encoded = len(files), float(sum(each.stat().st_size for each in files))
        sizes = set()
        for file in files[:: max(1, len(files) // _SAMPLED_IMAGES)]:
            with suppress(OSError), Image.open(file) as image:
                sizes.add(image.size)
        if len(sizes) == 1:  # which packing then keeps
            pixels = math.prod(sizes.pop())
    return int(2 * encoded + images * pixels * 3)


def _pretraining_seconds(params: Params, pace: Pace) -> float:
    """Every image as long as one of an episode, its head included, on all cores together."""
    pretrain, per_class = params.pretrain, IMAGES_PER_CLASS
    if params.data.source == "synthetic":
        per_class = params.data.synthetic.images_per_class
    image = pace.training_episode / params.training_episode.images / pace.replicas
    smaller = 1 - (pretrain.small_size / params.model.image_size) ** 2
    shrunk = 1 - pretrain.small_share * max(smaller, 0.0)
    return pretrain.epochs * SPLIT_CLASSES["train"] * per_class * image * shrunk


def _loader_seconds(params: Params, pace: Pace) -> float:
    """Decoding is what takes long; workers must start in every round."""
    bench = params.loader.bench
    counts = _WORKER_COUNTS if bench.workers == "auto" else len(bench.workers)
    decoding = bench.batches * bench.batchsz * params.training_episode.images * pace.decoded_image
    each = 0.3 + max(bench.seconds, decoding if "jpeg" in bench.backends else 0.0)
    return (bench.blocks + 1) * counts * each


def _training_seconds(params: Params, device: torch.device, bfloat16: bool) -> float:
    """Seconds of an episode's forward and backward pass."""
    network = build_network(params.model, 0).to(device)
    images = _images(params, params.training_episode, device)

    def step() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
            loss = network(*images).float().square().mean()
        loss.backward()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return _seconds(step)


@torch.inference_mode()
def _test_seconds(params: Params, device: torch.device) -> float:
    """Seconds of an evaluated episode whose images must all be embedded: an upper bound."""
    network = build_network(params.model, 0).eval().to(device)
    images = _images(params, replace(params.episode, k_query=params.evaluate.k_query), device)
    return _seconds(lambda: network(*images).cpu())


def _images(
    params: Params, episode: EpisodeParams, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Support [1, n, k, 3, h, w] and query [1, n * k_query, 3, h, w] of noise."""
    n, side = episode.n_way, params.model.image_size
    support = torch.rand(1, n, episode.k_shot, 3, side, side, device=device)
    return support, torch.rand(1, n * episode.k_query, 3, side, side, device=device)


def _seconds(work: Callable[[], object]) -> float:
    """Seconds of the second call."""
    work()
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
