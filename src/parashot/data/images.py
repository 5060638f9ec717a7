"""Encoded bytes -> uint8 RGB arrays [h, w, 3], whatever the image looked like before.

Alpha is laid over white, EXIF rotation is applied, and of an animation the first frame is taken.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from parashot.errors import DataError, one_line

Pixels = NDArray[np.uint8]

MAX_PIXELS = 64 * 10**6
MAX_BYTES = 256 * 2**20  # of an encoded image

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM")
"""Raster formats: among Pillow's others are some, like EPS, whose reader starts a program."""

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})

# warnings about odd but readable files; for good, since several threads decode
warnings.filterwarnings("ignore", module=r"PIL\.")


def is_image(path: Path) -> bool:
    """Tell an image by the ending of its name."""
    return path.suffix.lower() in SUFFIXES


def read_encoded(path: Path) -> bytes:
    """Return the content of an image's file. Raises `DataError` with the reason alone."""
    try:
        size = path.stat().st_size
        if not path.is_file() or size > MAX_BYTES:
            raise DataError(f"no plain file, or {size} bytes, more than an image can have")
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})") from error


def decode(data: bytes) -> Pixels:
    """Decode one image to uint8 [h, w, 3]. Raises `DataError` with the reason alone."""
    if not data:
        raise DataError("the file is empty")
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            width, height = image.size
            if width * height > MAX_PIXELS:
                raise DataError(f"{width}×{height} pixels, more than {MAX_PIXELS // 10**6} million")
            return np.asarray(_to_rgb(image))
    except DataError:
        raise
    except UnidentifiedImageError as error:
        raise DataError("not an image in a known format") from error
    except Exception as error:  # on malformed bytes, decoders raise almost anything
        raise DataError(f"damaged image ({one_line(error)})") from error


def resize_square(pixels: Pixels, size: int) -> Pixels:
    """Cut the centre square out of [h, w, 3] and bring it to [size, size, 3], bilinear with antialiasing."""
    height, width = pixels.shape[:2]
    if (height, width) == (size, size):
        return pixels
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    square = Image.fromarray(pixels[top : top + side, left : left + side])
    return np.asarray(square.resize((size, size), Image.Resampling.BILINEAR))


def encode_jpeg(pixels: Pixels) -> bytes:
    """Encode uint8 [h, w, 3] as JPEG."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def encode_png(pixels: Pixels) -> bytes:
    """Encode uint8 [h, w, 3] as PNG: lossless, compressed fast rather than small."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def _to_rgb(image: Image.Image) -> Image.Image:
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith("I"):  # I;16 and its kin; older decoders widen 16 bit to I
        return Image.fromarray((np.asarray(upright).clip(0, 65535) >> 8).astype(np.uint8)).convert("RGB")
    if upright.mode == "F":
        raise DataError("floating point pixels have no agreed range; convert it to 8 or 16 bit")
    if upright.has_transparency_data:
        white = Image.new("RGBA", upright.size, "white")
        return Image.alpha_composite(white, upright.convert("RGBA")).convert("RGB")
    return upright.convert("RGB")
