"""Every kind of image becomes the RGB array a person would expect to see."""

from __future__ import annotations

import io
import struct
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from parashot.data.images import decode, encode_jpeg, encode_png, resize_square
from parashot.errors import DataError

RED = [255, 0, 0]
RED_IMAGE, BLUE_IMAGE = (Image.new("RGB", (4, 4), colour) for colour in ("red", "blue"))


def _encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def _png(mode: str, colour: int | tuple[int, ...]) -> bytes:
    return _encoded(Image.new(mode, (4, 4), colour), "PNG")


def test_png_round_trip_is_lossless() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (7, 5, 3), dtype=np.uint8)
    decoded = decode(encode_png(pixels))
    assert decoded.dtype == np.uint8
    assert np.array_equal(decoded, pixels)


PALETTE = Image.new("P", (4, 4), 1)
PALETTE.putpalette([0, 0, 0, 10, 20, 30])

ODD: dict[str, tuple[bytes, list[int]]] = {
    "grey": (_png("L", 100), [100] * 3),
    "16 bit grey": (_png("I;16", 0x8000), [128] * 3),
    "transparent": (_png("RGBA", (200, 0, 0, 0)), [255] * 3),
    "grey and half transparent": (_png("LA", (0, 128)), [127] * 3),
    "palette with a transparent index": (_encoded(PALETTE, "PNG", transparency=1), [255] * 3),
    "CMYK": (_encoded(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "TIFF"), RED),
    "an animated GIF": (_encoded(RED_IMAGE, "GIF", save_all=True, append_images=[BLUE_IMAGE]), RED),
}


@pytest.mark.parametrize(("data", "expected"), ODD.values(), ids=ODD)
def test_modes_and_formats_become_rgb(data: bytes, expected: list[int]) -> None:
    assert decode(data)[0, 0].tolist() == expected


def test_exif_rotation_is_applied() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    assert decode(_encoded(Image.new("RGB", (6, 2)), "JPEG", exif=exif)).shape == (6, 2, 3)


JPEG = encode_jpeg(np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8))
SIZE_AT = JPEG.index(b"\xff\xc0") + 5


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"<html>not here</html>", "not an image"),
        (JPEG[: len(JPEG) // 2], "damaged"),
        (JPEG[:SIZE_AT] + struct.pack(">HH", 65_000, 65_000) + JPEG[SIZE_AT + 4 :], "exceeds limit"),
        (_encoded(Image.new("1", (8200, 8200)), "PNG"), "8200×8200 pixels, more than 64 million"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image"),
        (_encoded(Image.new("F", (2, 2)), "TIFF"), "floating point"),
    ],
    ids=["empty", "html", "cut short", "bomb", "too many pixels", "postscript", "float"],
)
def test_unreadable_says_why_in_one_line(data: bytes, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        decode(data)


def test_decoding_is_quiet() -> None:
    """Decoders comment on odd files by warnings, and C libraries on stderr by themselves."""
    odd = [_encoded(Image.new("P", (4, 4)), "PNG", transparency=bytes([0, 9])), JPEG[:-200]]
    program = (
        "import ast, sys\n"
        "from contextlib import suppress\n"
        "from parashot.data.images import decode\n"
        "from parashot.errors import DataError\n"
        "for data in ast.literal_eval(sys.stdin.read()):\n"
        "    with suppress(DataError):\n"
        "        decode(data)\n"
    )
    command = [sys.executable, "-W", "always", "-c", program]
    done = subprocess.run(command, input=repr(odd), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_resize_square_cuts_the_centre() -> None:
    pixels = np.zeros((10, 30, 3), np.uint8)
    pixels[:, 10:20] = 200
    assert np.array_equal(resize_square(pixels, 5), np.full((5, 5, 3), 200))
