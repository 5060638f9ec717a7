"""100 classes of procedurally drawn images: real JPEGs, each a pure function of (seed, class, index).

A class is the look of one figure: a closed curve of a few harmonics, filled with a texture of a fixed
frequency and direction relative to the curve. All else varies within a class: pose, colours, the ground,
further figures of no class, noise. So neither single pixels nor colours tell the classes apart.

    m figures · s pixels of a side; coordinates run from -1 to 1 over the image
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parashot.data.images import Pixels, encode_jpeg
from parashot.data.raw import ImageStream, RawImage, Splits
from parashot.hardware import usable_cores
from parashot.lifetime import end_with_maker
from parashot.params import SPLIT_CLASSES, SyntheticParams

Floats = NDArray[np.float32]

CLASSES = sum(SPLIT_CLASSES.values())

HARMONICS = 5
"""Harmonics 2 to 6 of the radius; the first would only shift the figure."""

TEXTURES = 5
"""Stripes, checks, dots, rings, bands along the outline."""

_LOOKS, _SPLIT, _IMAGE = range(3)  # first word of each random stream's key, after the seed
_DISTRACTORS = 3
_MOST_PROCESSES = 8
_SWING = 0.42
_FREQUENCY = (1.2, 2.6)


class Looks(NamedTuple):
    """Shape and texture of m figures, each [m, 1, 1]: the same in every pose and colour."""

    outline: NDArray[np.complex64]  # [m, 1, 1, HARMONICS] amplitude and phase of each harmonic
    texture: NDArray[np.int64]  # which of TEXTURES
    frequency: Floats  # periods across the figure
    direction: Floats  # radians, against the outline


class Poses(NamedTuple):
    """Poses of m figures, each [m, 1, 1]: centre and radius in image coordinates, rotation in radians."""

    x: Floats
    y: Floats
    radius: Floats
    rotation: Floats


def synthetic(params: SyntheticParams, seed: int) -> ImageStream:
    """Return the whole set, drawn while it is consumed, and its class split."""
    return ImageStream(_images(params, seed), class_splits(seed))


def class_splits(seed: int) -> Splits:
    """Shuffle the classes by `seed` and cut them into 64/16/20."""
    order = np.random.default_rng((seed, _SPLIT)).permutation(CLASSES)
    parts = np.split(order, np.cumsum([*SPLIT_CLASSES.values()])[:-1])
    return {
        split: tuple(_label(index) for index in sorted(part.tolist()))
        for split, part in zip(SPLIT_CLASSES, parts, strict=True)
    }


def draw_image(looks: Looks, seed: int, index: int, number: int, size: int) -> Pixels:
    """Draw image `number` of class `index`: uint8 [size, size, 3]. `looks` has a row per class."""
    rng = np.random.default_rng((seed, _IMAGE, index, number))
    pairs: Iterable[tuple[Any, Any]] = zip(draw_looks(rng, _DISTRACTORS), looks, strict=True)
    everything = Looks(*(np.concatenate((others, own[index : index + 1])) for others, own in pairs))
    cover, texture = paint(everything, _poses(rng), size)
    ground, colours = _colours(rng)
    canvas = _ground(rng, ground, size)
    for layer, pattern, (light, dark) in zip(cover, texture, colours, strict=True):
        paint_colour = light + (dark - light) * pattern[..., None]
        canvas += (paint_colour - canvas) * layer[..., None]
    canvas *= rng.uniform(0.75, 1.15)
    canvas += 0.07 * rng.standard_normal(canvas.shape, np.float32)
    return (canvas.clip(0, 1) * 255).astype(np.uint8)


def _images(params: SyntheticParams, seed: int) -> Iterator[RawImage]:
    """Draw classes in a few processes, and yield them in order."""
    draw, count = partial(_images_of_class, params, seed), min(usable_cores(), _MOST_PROCESSES)
    with ProcessPoolExecutor(count, get_context("spawn"), _begin_process) as processes:
        for images in processes.map(draw, range(CLASSES)):
            yield from images


def _begin_process() -> None:
    end_with_maker()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the maker as well


def _images_of_class(params: SyntheticParams, seed: int, index: int) -> list[RawImage]:
    looks = draw_looks(np.random.default_rng((seed, _LOOKS)), CLASSES)
    digits = len(str(params.images_per_class - 1))
    return [
        RawImage(
            _label(index),
            f"{number:0{digits}d}.jpg",
            encode_jpeg(draw_image(looks, seed, index, number, params.image_size)),
        )
        for number in range(params.images_per_class)
    ]


def _label(index: int) -> str:
    return f"figure{index:02d}"


def _poses(rng: np.random.Generator) -> Poses:
    """Draw poses: distractors small and anywhere, then the figure, large, near the middle and upright."""
    reach = np.array([0.95] * _DISTRACTORS + [0.25])
    low, high = (np.array([few] * _DISTRACTORS + [own]) for few, own in ((0.2, 0.55), (0.42, 0.85)))
    turn = np.array([np.pi] * _DISTRACTORS + [0.5])
    x, y = rng.uniform(-reach, reach, (2, _DISTRACTORS + 1))
    drawn = (x, y, rng.uniform(low, high), rng.uniform(-turn, turn))
    return Poses(*(each.astype(np.float32)[:, None, None] for each in drawn))


def _colours(rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return the colour of the ground [3] and a pair per figure [m, 2, 3], RGB from 0 to 1.

    The ground and the figure's two colours differ in brightness, so that it can be seen; in any order, so
    that brightness says nothing.
    """
    distractors = rng.random((_DISTRACTORS, 2, 3), np.float32)
    levels = rng.permutation(np.array([0.12, 0.5, 0.88], np.float32))
    ground, *own = levels[:, None] + rng.uniform(-0.3, 0.3, (3, 3)).astype(np.float32)
    return ground, np.concatenate([distractors, np.array([own])])


def _ground(rng: np.random.Generator, colour: Floats, size: int) -> Floats:
    """Paint the ground [size, size, 3]: one colour, a slope of brightness, faint waves."""
    grid = np.linspace(-1, 1, size, dtype=np.float32)
    slope, turn = rng.uniform(-0.2, 0.2, 2), rng.uniform(0, np.pi)
    shade = slope[0] * grid[None, :] + slope[1] * grid[:, None]
    wave = np.cos(turn) * grid[None, :] + np.sin(turn) * grid[:, None]
    shade += rng.uniform(0, 0.16) * np.sin(rng.uniform(3, 14) * wave + rng.uniform(0, 2 * np.pi))
    canvas: Floats = (colour + shade[..., None]).astype(np.float32)
    return canvas


# --- figures ----------------------------------------------------------------------------------------


def draw_looks(rng: np.random.Generator, count: int) -> Looks:
    """Draw the looks of `count` figures; textures, frequencies and directions are spread evenly over them."""

    def spread() -> Floats:
        shares = (rng.permutation(count) + rng.random(count)) / count
        return shares.astype(np.float32)[:, None, None]

    outline = rng.normal(size=(count, HARMONICS)) + 1j * rng.normal(size=(count, HARMONICS))
    outline *= _SWING / np.linalg.norm(outline, axis=1, keepdims=True)
    low, high = _FREQUENCY
    return Looks(
        outline=outline.astype(np.complex64)[:, None, None],
        texture=np.minimum(spread() * TEXTURES, TEXTURES - 1).astype(np.int64),
        frequency=low + (high - low) * spread(),
        direction=np.float32(np.pi) * spread(),
    )


def paint(looks: Looks, poses: Poses, size: int) -> tuple[Floats, Floats]:
    """Return cover and texture of each figure, both [m, s, s] from 0 to 1, with antialiased edges."""
    pixels = poses.radius * (size / 2)
    grid = ((np.arange(size, dtype=np.float32) + 0.5) * (2 / size) - 1).astype(np.float32)
    x = (grid - poses.x) / poses.radius
    y = (grid[:, None] - poses.y) / poses.radius
    point = (x + 1j * y) * np.exp(-1j * poses.rotation)  # in the figure's own frame
    distance = np.abs(point)
    power = angle = point / np.maximum(distance, np.float32(1e-6))
    edge = np.ones(angle.shape, np.float32)  # radius of the outline in the direction of each pixel
    for harmonic in range(HARMONICS):
        power = power * angle
        edge += (power * looks.outline[..., harmonic]).real
    cover = ((edge - distance) * pixels + 0.5).clip(0, 1)
    return cover, _texture(looks, point, distance / np.maximum(edge, np.float32(0.3)), pixels)


def _texture(looks: Looks, point: NDArray[np.complex64], depth: Floats, pixels: Floats) -> Floats:
    """Texture of each figure [m, s, s]; `depth` is 0 at the centre of a figure and 1 at its outline."""
    wave = np.float32(np.pi) * looks.frequency
    turned = wave * point * np.exp(-1j * looks.direction)
    along, across = np.sin(turned.real), np.sin(turned.imag)
    patterns = (
        along,
        1.5 * along * across,
        along + across - 0.6,
        np.sin(wave * np.abs(point)),
        np.sin(2 * wave * depth),
    )
    chosen = np.choose(looks.texture, patterns)
    texture: Floats = (0.5 + chosen * pixels / (2 * wave)).clip(0, 1)
    return texture
