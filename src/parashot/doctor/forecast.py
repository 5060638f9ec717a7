"""How long the trainings of a study take on this machine, and how much disk it needs, before it is begun.

A few steps are timed; the rest is counting. Meant to tell minutes from hours: what measures times takes some
minutes more.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from PIL import Image

from parashot.files import from_folder
from parashot.model.network import build_network
from parashot.parallel.abilities import precisions
from parashot.parallel.context import Placement
from parashot.params import IMAGES_PER_CLASS, SPLIT_CLASSES, EpisodeSpec, Params

_JPEG_BYTES_PER_PIXEL = 0.5
_MINIIMAGENET_BYTES = 250e6
_SAMPLED_IMAGES = 20


@dataclass(frozen=True)
class Pace:
    """Seconds of an episode by one replica here, and the number of replicas."""

    training_episode: float
    test_episode: float
    replicas: int


def measure_pace(params: Params, placement: Placement) -> Pace:
    """Time a step and an evaluated episode whose images must all be embedded, a few seconds in all."""
    device, asked = torch.device(placement.device_type), params.train.precision
    able = precisions(placement.device_type) if asked == "auto" else [asked]
    network = build_network(params.model, 0).to(device)
    trained, tested = (
        _noise(params, each, device) for each in (params.training_episode, params.tested_episode)
    )

    def step(precision: str) -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            loss = network(*trained).float().square().mean()
        loss.backward()
        if device.type == "cuda":
            torch.cuda.synchronize()

    threads = torch.get_num_threads()
    torch.set_num_threads(placement.threads_per_replica)
    try:
        training = min(_seconds(partial(step, each)) for each in able)
        network.eval()
        with torch.inference_mode():
            return Pace(training, _seconds(lambda: network(*tested).cpu()), placement.replicas)
    finally:
        torch.set_num_threads(threads)


def training_seconds(params: Params, pace: Pace) -> dict[str, float]:
    """Seconds of each part of a study that trains or evaluates, by the names of stages."""
    names = [name for name in params.parallel.strategies if not params.parallel.switched_off(name)]
    train, sizes, warmup = params.train, params.batchsz_study, params.warmup_study
    validations = train.episodes / train.batchsz / train.validate_every * train.val_episodes
    evaluated = (validations + params.evaluate.val_episodes) * pace.test_episode
    whole = train.episodes * pace.training_episode + evaluated
    seconds = {
        "trainings": sum(whole / (1 if name == "serial" else pace.replicas) for name in names),
        "batchsz": (len(sizes.sizes) + 1) * sizes.seeds * sizes.seconds,  # one size in fp32 as well
        "evaluate": params.evaluate.test_episodes * pace.test_episode,
    }
    if params.pretrain.epochs:
        seconds["pretrain"] = _pretraining_seconds(params, pace)
    if warmup.enabled:
        episodes = 2 * len(warmup.sizes) * warmup.seeds * warmup.episodes
        seconds["warmup"] = episodes * pace.training_episode / pace.replicas
    if params.seeds_study.enabled:
        seconds["trainings"] *= params.seeds_study.seeds
    return seconds


def study_bytes(params: Params, root: Path) -> int:
    """Bytes that raw and packed images take; what DVC keeps beside them shares their blocks where it can."""
    data, pixels = params.data, params.data.pack_size**2
    images, encoded = sum(SPLIT_CLASSES.values()) * _images_per_class(params), _MINIIMAGENET_BYTES
    if data.source == "synthetic":
        pixels = data.synthetic.image_size**2
        encoded = images * pixels * _JPEG_BYTES_PER_PIXEL
    elif data.source == "folder" and data.archive:
        folder = from_folder(root, data.archive)
        files = [each for each in (folder, *sorted(folder.rglob("*"))) if each.is_file()]  # or one archive
        images, encoded = len(files), float(sum(each.stat().st_size for each in files))
        sizes = set()
        for file in files[:: max(1, len(files) // _SAMPLED_IMAGES)]:
            # of a file that is no picture, Pillow raises almost anything
            with suppress(Exception), Image.open(file) as image:
                sizes.add(image.size)
        if len(sizes) == 1:  # which packing then keeps
            pixels = math.prod(sizes.pop())
    return int(2 * encoded + images * pixels * 3)


def _pretraining_seconds(params: Params, pace: Pace) -> float:
    """Every image as long as one of an episode, its head included, on all cores together."""
    pretrain, images = params.pretrain, SPLIT_CLASSES["train"] * _images_per_class(params)
    image = pace.training_episode / params.training_episode.images / pace.replicas
    smaller = 1 - (pretrain.small_size / params.model.image_size) ** 2
    shrunk = 1 - pretrain.small_share * max(smaller, 0.0)
    return pretrain.epochs * images * image * shrunk


def _images_per_class(params: Params) -> int:
    synthetic = params.data.source == "synthetic"
    return params.data.synthetic.images_per_class if synthetic else IMAGES_PER_CLASS


def _noise(params: Params, episode: EpisodeSpec, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Support [1, n, k, 3, h, w] and query [1, n * k_query, 3, h, w]."""
    n, side = episode.n_way, params.model.image_size
    support = torch.rand(1, n, episode.k_shot, 3, side, side, device=device)
    return support, torch.rand(1, n * episode.k_query, 3, side, side, device=device)


def _seconds(work: Callable[[], object]) -> float:
    """Seconds of the second call."""
    work()
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
