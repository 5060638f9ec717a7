"""Every kind of image becomes the RGB array a person would expect to see."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from parashot.data.images import decode, encode_jpeg, encode_png, resize_square
from parashot.errors import DataError


def _encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def _pixel(data: bytes) -> list[int]:
    return decode(data)[0, 0].tolist()


def test_png_round_trip_is_lossless() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (7, 5, 3), dtype=np.uint8)
    decoded = decode(encode_png(pixels))
    assert decoded.dtype == np.uint8
    assert np.array_equal(decoded, pixels)


@pytest.mark.parametrize(
    ("mode", "colour", "expected"),
    [
        ("L", 100, [100, 100, 100]),
        ("1", 1, [255, 255, 255]),
        ("I;16", 0x8000, [128, 128, 128]),
        ("RGBA", (200, 0, 0, 0), [255, 255, 255]),
        ("RGBA", (200, 0, 0, 255), [200, 0, 0]),
        ("LA", (0, 128), [127, 127, 127]),
    ],
)
def test_modes_become_rgb(mode: str, colour: int | tuple[int, ...], expected: list[int]) -> None:
    assert _pixel(_encoded(Image.new(mode, (4, 4), colour), "PNG")) == expected


def test_palette_with_transparent_index_lies_over_white() -> None:
    image = Image.new("P", (4, 4), 1)
    image.putpalette([0, 0, 0, 10, 20, 30])
    assert _pixel(_encoded(image, "PNG")) == [10, 20, 30]
    assert _pixel(_encoded(image, "PNG", transparency=1)) == [255, 255, 255]


def test_cmyk_jpeg() -> None:
    red, green, blue = _pixel(_encoded(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG", quality=95))
    assert red > 240
    assert max(green, blue) < 15


def test_exif_rotation_is_applied() -> None:
    image = Image.new("RGB", (6, 2), "black")
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    assert decode(_encoded(image, "JPEG", exif=exif)).shape == (6, 2, 3)


def test_first_frame_of_an_animation() -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    data = _encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert _pixel(data) == [255, 0, 0]


JPEG = encode_jpeg(np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8))
BOMB = _encoded(Image.new("1", (8200, 8200)), "PNG")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"<html>not here</html>", "not an image"),
        (JPEG[: len(JPEG) // 2], "damaged"),
        (BOMB, "8200×8200 pixels, more than 64 million"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image"),
        (_encoded(Image.new("F", (2, 2)), "TIFF"), "floating point"),
    ],
    ids=["empty", "html", "truncated", "bomb", "postscript", "float"],
)
def test_unreadable_says_why_in_one_line(data: bytes, reason: str) -> None:
    with pytest.raises(DataError, match=reason) as caught:
        decode(data)
    assert "\n" not in str(caught.value)


def test_resize_square_cuts_the_centre() -> None:
    pixels = np.zeros((10, 30, 3), np.uint8)
    pixels[:, 10:20] = 200
    assert np.array_equal(resize_square(pixels, 5), np.full((5, 5, 3), 200))


def test_resize_square_averages_when_shrinking() -> None:
    checks = (np.indices((64, 64)).sum(0) % 2 * 255).astype(np.uint8)
    small = resize_square(np.repeat(checks[..., None], 3, 2), 8)
    assert np.abs(small.astype(int) - 127).max() < 20


def test_resize_square_leaves_the_right_size_alone() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (9, 9, 3), dtype=np.uint8)
    assert np.array_equal(resize_square(pixels, 9), pixels)
