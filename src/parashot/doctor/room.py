"""How much disk the images of a study take, before it is begun."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path

from PIL import Image

from parashot.files import from_folder
from parashot.params import IMAGES_PER_CLASS, SPLIT_CLASSES, Params

_JPEG_BYTES_PER_PIXEL = 0.5
_MINIIMAGENET_BYTES = 250e6
_SAMPLED_IMAGES = 20


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
