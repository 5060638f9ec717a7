"""Every shell block of the guide, run in order in a finished small study."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from checkouts import ROOT, Checkout

from parashot.data.images import encode_jpeg

BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PLACES = {word: f"own/{word.lower()}" for word in ("IMAGES", "SHOTS", "PICTURES", "STORAGE")}
"""Words that stand for a place of the reader's own."""


def fill(folder: Path, classes: int, images: int) -> None:
    """A folder of classes, each of one colour."""
    for number in range(classes):
        colour = np.random.default_rng(number).integers(0, 256, 3)
        (folder / f"class {number}").mkdir(parents=True)
        for image in range(images):
            noise = np.random.default_rng(image).integers(0, 30, (20, 24, 3))
            pixels = (colour + noise).clip(0, 255).astype(np.uint8)
            (folder / f"class {number}/{image}.jpg").write_bytes(encode_jpeg(pixels))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_command_works(studied: Checkout, tmp_path: Path) -> None:
    fill(studied.root / "own/images", classes=30, images=8)
    fill(studied.root / "own/shots", classes=3, images=2)
    fill(studied.root / "own/pictures", classes=3, images=4)
    blocks = BLOCK.findall((ROOT / "docs/guide.md").read_text(encoding="utf-8"))
    commands = [line for block in blocks for line in block.splitlines()]
    assert len(commands) > 16
    try:
        for command in commands:
            if not command.startswith(". "):  # the environment of the tests is that of the reader
                studied.run("bash", "-c", re.sub("|".join(PLACES), lambda word: PLACES[word[0]], command))
    finally:
        studied.restore()
        shutil.rmtree(studied.root / "own", ignore_errors=True)
