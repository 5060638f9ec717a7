"""Images that are damaged, disguised or bombs are refused; odd ones have one meaning."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from answers import Answered, Refused
from PIL import Image

from parashot.classify.pictures import read_picture
from parashot.data import archives
from parashot.data.images import decode
from parashot.data.raw import ImageStream, RawImage, write_raw
from parashot.errors import DataError

RNG = np.random.default_rng(0)
NOISE = RNG.integers(0, 256, (40, 30, 3), dtype=np.uint8)


def _encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def _noise(kind: str, mode: str = "RGB", **options: object) -> bytes:
    return _encoded(Image.fromarray(NOISE).convert(mode), kind, **options)


def _png(width: int, height: int, *chunks: bytes, depth: int = 8, colour: int = 2) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join((_chunk(b"IHDR", header), *chunks, _chunk(b"IEND", b"")))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _jpeg_of(width: int, height: int) -> bytes:
    data = _noise("JPEG")
    at = data.index(b"\xff\xc0") + 5
    return data[:at] + struct.pack(">HH", height, width) + data[at + 4 :]


def _gif_of(width: int, height: int) -> bytes:
    data = _noise("GIF", "P")
    return data[:6] + struct.pack("<HH", width, height) + data[10:]


def _bmp_of(width: int, height: int) -> bytes:
    data = _noise("BMP")
    return data[:18] + struct.pack("<ii", width, height) + data[26:]


def _tiff(*entries: tuple[int, int, int, int]) -> bytes:
    """A little TIFF of (tag, type, count, value)."""
    fields = b"".join(struct.pack("<HHII", *each) for each in sorted(entries))
    return b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", len(entries)) + fields + bytes(4) + bytes(64)


# --- damaged and disguised --------------------------------------------------------------------------------

CUT = {
    kind: _noise(kind, mode)
    for kind, mode in {
        "JPEG": "RGB",
        "PNG": "RGB",
        "GIF": "P",
        "BMP": "RGB",
        "WEBP": "RGB",
        "TIFF": "RGB",
        "PPM": "RGB",
    }.items()
}


@pytest.mark.parametrize("share", [0.02, 0.5, 0.9])
@pytest.mark.parametrize("kind", CUT)
def test_cut_short(refused: Refused, kind: str, share: float) -> None:
    data = CUT[kind]
    refused(DataError, lambda: decode(data[: max(4, int(share * len(data)))]))


NO_IMAGES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "the file is empty"),
    "zeros": (bytes(1000), "not an image"),
    "text": (b"just text", "not an image"),
    "a web page": (b"<!doctype html><p>404", "not an image"),
    "a program": (b"\x7fELF" + bytes(100), "not an image"),
    "an archive": (b"PK\x03\x04" + bytes(100), "not an image"),
    "a PDF": (b"%PDF-1.4\n" + bytes(100), "not an image"),
    "PostScript, whose reader starts a program": (
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(%pipe%id) run\n",
        "not an image",
    ),
    "a drawing that loads another": (
        b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>',
        "not an image",
    ),
    "an icon": (_encoded(Image.fromarray(NOISE), "ICO"), "not an image"),
    "a Photoshop file": (b"8BPS\0\1" + bytes(100), "not an image"),
    "a FITS file": (b"SIMPLE  =                    T" + bytes(3000), "not an image"),
    "a JPEG without scans": (b"\xff\xd8\xff\xd9", "image"),
    "a PNG without data": (_png(9, 9), "damaged"),
    "a PNG whose data are noise": (_png(9, 9, _chunk(b"IDAT", os.urandom(99))), "damaged"),
    "a PNG with a wrong checksum": (CUT["PNG"][:-20] + b"????" + CUT["PNG"][-16:], "damaged"),
    "a PNG of a mode that is none": (_png(9, 9, depth=3, colour=5), "image"),
    "a PNG of no width": (_png(0, 9, _chunk(b"IDAT", zlib.compress(b""))), ""),
    "a BMP of no width": (_bmp_of(0, 9), ""),
    "a TIFF without fields": (_tiff(), ""),
    "a TIFF that points at itself": (b"II*\0" + struct.pack("<I", 4) + bytes(20), ""),
    "a TIFF of a compression to come": (
        _tiff((256, 4, 1, 8), (257, 4, 1, 8), (258, 3, 1, 8), (259, 3, 1, 65000), (262, 3, 1, 1)),
        "",
    ),
    "a TIFF with data beyond its end": (
        _tiff(
            *((256, 4, 1, 8), (257, 4, 1, 8), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1)),
            *((273, 4, 1, 2**31), (277, 3, 1, 1), (278, 4, 1, 8), (279, 4, 1, 64)),
        ),
        "damaged",
    ),
    "pixels with a point": (_encoded(Image.new("F", (2, 2)), "TIFF"), "floating point"),
    "a PPM of letters": (b"P3 2 2 255\n a b c d", "damaged"),
    "a PPM of a negative size": (b"P6 -2 2 255\n" + bytes(12), "image"),
    "a PPM without an end to its size": (b"P6 " + b"9" * 5000 + b" 2 255\n", "image"),
}


@pytest.mark.parametrize(("data", "reason"), NO_IMAGES.values(), ids=NO_IMAGES)
def test_no_images(refused: Refused, data: bytes, reason: str) -> None:
    refused(DataError, lambda: decode(data), reason)


# --- bombs ------------------------------------------------------------------------------------------------

BOMBS = {
    "PNG": _png(60_000, 60_000, _chunk(b"IDAT", zlib.compress(bytes(1000)))),
    "PNG of 2^31 pixels width": _png(2**31 - 1, 2**31 - 1),
    "JPEG": _jpeg_of(65_000, 65_000),
    "GIF": _gif_of(65_535, 65_535),
    "BMP": _bmp_of(2**30, 2**30),
    "TIFF": _tiff(
        *((256, 4, 1, 99_999), (257, 4, 1, 99_999), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1)),
        *((273, 4, 1, 200), (277, 3, 1, 1), (278, 4, 1, 99_999), (279, 4, 1, 64)),
    ),
    "PPM": b"P6 100000 100000 255\n",
    "just too many": _png(8_001, 8_000),
}


@pytest.mark.parametrize("data", BOMBS.values(), ids=BOMBS)
def test_bombs(refused: Refused, data: bytes) -> None:
    """Refused by the header alone: none of them holds the pixels that it claims."""
    refused(DataError, lambda: decode(data), "more than 64 million")


TEXTS = {
    "zTXt": _chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(80 * 2**20), 1)),
    "iTXt": _chunk(b"iTXt", b"a\0\1\0\0\0" + zlib.compress(bytes(80 * 2**20), 1)),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_bomb_in_a_remark(refused: Refused, text: bytes) -> None:
    data = _png(1, 1, text, _chunk(b"IDAT", zlib.compress(bytes(4))))
    refused(DataError, lambda: decode(data), "damaged image")


# --- odd, with one meaning --------------------------------------------------------------------------------

RED = [255, 0, 0]


def _frames(kind: str, **options: object) -> bytes:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    return _encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options)


def _turned(orientation: object) -> bytes:
    image = Image.new("RGB", (6, 2), "red")
    exif = Image.Exif()
    exif[0x0112] = orientation
    return _encoded(image, "PNG", exif=exif)


def _alpha(mode: str, colour: tuple[int, ...]) -> bytes:
    return _encoded(Image.new(mode, (4, 4), colour), "PNG")


ODD: dict[str, tuple[bytes, tuple[int, int], list[int]]] = {
    "an animated GIF": (_frames("GIF"), (4, 4), RED),
    "an animated PNG": (_frames("PNG"), (4, 4), RED),
    "an animated WebP": (_frames("WEBP", lossless=True), (4, 4), RED),
    "a TIFF of two pages": (_frames("TIFF"), (4, 4), RED),
    "16 bit grey": (_encoded(Image.new("I;16", (4, 4), 0x8000), "PNG"), (4, 4), [128] * 3),
    "16 bit grey, big-endian": (_encoded(Image.new("I;16B", (4, 4), 0x8000), "TIFF"), (4, 4), [128] * 3),
    "16 bit grey, portable": (b"P5 1 1 65535\n\x80\x00", (1, 1), [128] * 3),
    "16 bit colour": (
        _png(1, 1, _chunk(b"IDAT", zlib.compress(b"\0\xff\xff\0\0\0\0")), depth=16),
        (1, 1),
        RED,
    ),
    "CMYK in a TIFF": (_encoded(Image.new("CMYK", (4, 4), (0, 255, 255, 0)), "TIFF"), (4, 4), RED),
    "nothing but transparent": (_alpha("RGBA", (9, 9, 9, 0)), (4, 4), [255] * 3),
    "grey and half transparent": (_alpha("LA", (0, 128)), (4, 4), [127] * 3),
    "one bit": (_encoded(Image.new("1", (4, 4), 1), "PNG"), (4, 4), [255] * 3),
    "turned by a quarter": (_turned(6), (6, 2), RED),
    "upside down": (_turned(3), (2, 6), RED),
    "turned to nowhere": (_turned(77), (2, 6), RED),
    "a JPEG called a PNG": (_encoded(Image.new("RGB", (8, 8), "white"), "JPEG"), (8, 8), [255] * 3),
    "a picture with a zip behind it": (
        _encoded(Image.new("RGB", (4, 4), "red"), "PNG") + b"PK\x05\x06" + bytes(18),
        (4, 4),
        RED,
    ),
    "remarks that are none": (
        _png(1, 1, _chunk(b"tEXt", b"no end"), _chunk(b"IDAT", zlib.compress(b"\0\xff\0\0"))),
        (1, 1),
        RED,
    ),
    "a rotation that is none": (
        _png(1, 1, _chunk(b"eXIf", b"II*\0\xff\xff\xff\xff"), _chunk(b"IDAT", zlib.compress(b"\0\xff\0\0"))),
        (1, 1),
        RED,
    ),
    "a very wide one": (_encoded(Image.new("RGB", (60_000, 1), "red"), "PNG"), (1, 60_000), RED),
}


@pytest.mark.parametrize(("data", "shape", "colour"), ODD.values(), ids=ODD)
def test_odd_images_have_one_meaning(
    answered: Answered, data: bytes, shape: tuple[int, int], colour: list[int]
) -> None:
    pixels = decode(data)
    assert pixels.dtype == np.uint8
    assert pixels.shape == (*shape, 3)
    assert np.abs(pixels[0, 0].astype(int) - colour).max() <= 1
    answered()


def test_decoding_is_quiet(answered: Answered) -> None:
    """Decoders remark on odd files by warnings, and C libraries on stderr by themselves."""
    odd = [
        ODD["a rotation that is none"][0],
        _tiff((256, 4, 1, 8), (257, 4, 1, 8), (258, 3, 1, 8), (65000, 9, 77, 2**31)),
        _encoded(Image.new("P", (4, 4)), "PNG", transparency=bytes([0, 9])),
        CUT["JPEG"][:-200],
        CUT["WEBP"][:-99],
    ]
    program = (
        "import ast, sys\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from parashot.data.images import decode\n"
        "from parashot.errors import DataError\n"
        "def one(data):\n"
        "    try:\n"
        "        decode(data)\n"
        "    except DataError:\n"
        "        pass\n"
        "with ThreadPoolExecutor(4) as pool:\n"
        "    list(pool.map(one, ast.literal_eval(sys.stdin.read())))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", program],
        input=repr(odd * 3),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    answered()


# --- files ------------------------------------------------------------------------------------------------


def _make_huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(archives.MAX_FILE_BYTES + 1)


FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing": (lambda path: path.touch(), "the file is empty"),
    "a folder": (lambda path: path.mkdir(), "no plain file"),
    "a fifo": (os.mkfifo, "no plain file"),
    "an endless device": (lambda path: path.symlink_to("/dev/zero"), "no plain file"),
    "a link to nowhere": (lambda path: path.symlink_to("gone"), "cannot be read"),
    "a link to itself": (lambda path: path.symlink_to(path), "cannot be read"),
    "a huge file": (_make_huge, "more than an image can have"),
}


@pytest.mark.parametrize("name", ["x.jpg", "\u202egpj\n\x1b[2J.jpg"], ids=["plain name", "hostile name"])
@pytest.mark.parametrize(("make", "reason"), FILES.values(), ids=FILES)
def test_files_that_are_no_pictures(
    tmp_path: Path, refused: Refused, name: str, make: Callable[[Path], object], reason: str
) -> None:
    make(tmp_path / name)
    refused(DataError, lambda: read_picture(tmp_path / name), f"{tmp_path}/", reason)


@pytest.mark.parametrize("bad", ["fail", "skip"])
def test_the_store_names_the_bad_one(tmp_path: Path, refused: Refused, bad: str) -> None:
    def store() -> None:
        images = [RawImage("cat", "<b>.jpg", CUT["PNG"][:60])]
        write_raw(tmp_path / "raw", ImageStream(images), "folder", bad, lambda _: None)  # type: ignore[arg-type]

    words = "folder: no readable image" if bad == "skip" else "cat/<b>.jpg: damaged image"
    refused(DataError, store, words)
