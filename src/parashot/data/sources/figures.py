"""Figures: closed curves of a few harmonics, filled with a texture that is fixed relative to the curve.

Shapes: m figures, k harmonics, s pixels of a side. Coordinates run from -1 to 1 over the image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Number = TypeVar("Number", bound=np.generic)

HARMONICS = 5
"""Harmonics 2 to 6 of the radius; the first would only shift the figure."""

TEXTURES = 5
"""Stripes, checks, dots, rings, bands along the outline."""

_SWING = 0.42
_FREQUENCY = (1.2, 2.6)


@dataclass(frozen=True)
class Looks:
    """Shape and texture of m figures: the same in every pose and colour."""

    outline: NDArray[np.complex64]  # [m, k] amplitude and phase of each harmonic
    texture: NDArray[np.int64]  # [m] which of TEXTURES
    frequency: Floats  # [m] periods across the figure
    direction: Floats  # [m] radians, against the outline

    def row(self, index: int) -> Looks:
        """Return the look of one figure, m = 1."""
        at = slice(index, index + 1)
        return Looks(self.outline[at], self.texture[at], self.frequency[at], self.direction[at])

    def __add__(self, other: Looks) -> Looks:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Looks(*(np.concatenate(pair) for pair in pairs))


@dataclass(frozen=True)
class Poses:
    """Poses of m figures: centre [m, 2] and radius [m] in image coordinates, rotation [m] in radians."""

    centre: Floats
    radius: Floats
    rotation: Floats


def draw_looks(rng: np.random.Generator, count: int) -> Looks:
    """Draw the looks of `count` figures; textures, frequencies and directions are spread evenly over them."""

    def spread() -> Floats:
        return ((rng.permutation(count) + rng.random(count)) / count).astype(np.float32)

    outline = rng.normal(size=(count, HARMONICS)) + 1j * rng.normal(size=(count, HARMONICS))
    outline *= _SWING / np.linalg.norm(outline, axis=1, keepdims=True)
    low, high = _FREQUENCY
    return Looks(
        outline=outline.astype(np.complex64),
        texture=np.minimum(spread() * TEXTURES, TEXTURES - 1).astype(np.int64),
        frequency=low + (high - low) * spread(),
        direction=np.float32(np.pi) * spread(),
    )


def paint(looks: Looks, poses: Poses, size: int) -> tuple[Floats, Floats]:
    """Return cover and texture of each figure, both [m, s, s] from 0 to 1, with antialiased edges."""
    radius, pixels = _column(poses.radius), _column(poses.radius) * (size / 2)
    grid = ((np.arange(size, dtype=np.float32) + 0.5) * (2 / size) - 1).astype(np.float32)
    x = (grid[None, None, :] - _column(poses.centre[:, 0])) / radius
    y = (grid[None, :, None] - _column(poses.centre[:, 1])) / radius
    point = (x + 1j * y) * np.exp(-1j * _column(poses.rotation))  # in the figure's own frame
    distance = np.abs(point)
    edge = _edge(looks.outline, point / np.maximum(distance, np.float32(1e-6)))
    cover = ((edge - distance) * pixels + 0.5).clip(0, 1)
    return cover, _texture(looks, point, distance / np.maximum(edge, np.float32(0.3)), pixels)


def _edge(outline: NDArray[np.complex64], angle: NDArray[np.complex64]) -> Floats:
    """Radius of each curve [m, s, s] in the directions `angle`, unit complex numbers."""
    power, edge = angle, np.ones(angle.shape, np.float32)
    for harmonic in outline.T:
        power = power * angle
        edge += (power * _column(harmonic)).real
    return edge


def _texture(looks: Looks, point: NDArray[np.complex64], depth: Floats, pixels: Floats) -> Floats:
    """Texture of each figure [m, s, s]; `depth` is 0 at the centre of a figure and 1 at its outline."""
    wave = np.float32(np.pi) * _column(looks.frequency)
    turned = wave * point * np.exp(-1j * _column(looks.direction))
    along, across = np.sin(turned.real), np.sin(turned.imag)
    patterns = (
        along,
        1.5 * along * across,
        along + across - 0.6,
        np.sin(wave * np.abs(point)),
        np.sin(2 * wave * depth),
    )
    chosen = np.choose(_column(looks.texture), patterns)
    texture: Floats = (0.5 + chosen * pixels / (2 * wave)).clip(0, 1)
    return texture


def _column(values: NDArray[Number]) -> NDArray[Number]:
    return values[:, None, None]
