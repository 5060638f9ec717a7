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
    """Time a step and an evaluated episode, a few seconds in all."""
    device, asked = torch.device(placement.device_type), params.train.precision
    able = precisions(placement.device_type) if asked == "auto" else [asked]
    threads = torch.get_num_threads()
    torch.set_num_threads(placement.threads_per_replica)
    try:
        training = min(_training_seconds(params, device, each == "bf16") for each in able)
        return Pace(training, _test_seconds(params, device), placement.replicas)
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
    images, encoded = sum(SPLIT_CLASSES.values()) * IMAGES_PER_CLASS, _MINIIMAGENET_BYTES
    if data.source == "synthetic":
        pixels = data.synthetic.image_size**2
        images = sum(SPLIT_CLASSES.values()) * data.synthetic.images_per_class
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
    pretrain, per_class = params.pretrain, IMAGES_PER_CLASS
    if params.data.source == "synthetic":
        per_class = params.data.synthetic.images_per_class
    image = pace.training_episode / params.training_episode.images / pace.replicas
    smaller = 1 - (pretrain.small_size / params.model.image_size) ** 2
    shrunk = 1 - pretrain.small_share * max(smaller, 0.0)
    return pretrain.epochs * SPLIT_CLASSES["train"] * per_class * image * shrunk


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
    images = _images(params, params.tested_episode, device)
    return _seconds(lambda: network(*images).cpu())


def _images(params: Params, episode: EpisodeSpec, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
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
