"""Folders of coloured pictures of many shapes and kinds, and a network with random weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from coloured import COLOURS, MODEL, picture
from PIL import Image

from parashot import RelationNetwork, build_network


@pytest.fixture(autouse=True, scope="package")
def _one_thread() -> Iterator[None]:
    """Tensors here are so small that several threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def network() -> RelationNetwork:
    """One with random weights, whose batch norms have seen something."""
    made = build_network(MODEL, seed=1)
    seeded = torch.Generator().manual_seed(2)
    support = torch.randn(2, 3, 1, 3, 16, 16, generator=seeded)
    made.train()(support, torch.randn(2, 6, 3, 16, 16, generator=seeded))
    return made.eval()


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    """A folder per colour: names that need escaping elsewhere, unequal numbers, and things to pass over."""
    folder = tmp_path / "shots"
    for number, (name, colour) in enumerate(COLOURS.items()):
        inner = folder / name.replace("/", "_")
        (inner / "deeper").mkdir(parents=True)
        Image.fromarray(picture(colour, number)).save(inner / "one.PNG")
        if number:
            Image.fromarray(picture(colour, 10 + number)).save(inner / "deeper/two.jpg", quality=95)
        (inner / "notes.txt").write_text("not an image")
        (inner / ".hidden.png").write_bytes(b"not an image either")
    (folder / "readme.md").write_text("nor this")
    (folder / ".git").mkdir()
    return folder


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Four pictures of each colour, in folders called like the classes; some with a palette or alpha."""
    folder = tmp_path / "images"
    for number, (name, colour) in enumerate(COLOURS.items()):
        inner = folder / name.replace("/", "_")
        inner.mkdir(parents=True)
        for kind in range(4):
            image = Image.fromarray(picture(colour, 100 + 10 * number + kind, 30 + kind, 24))
            mode = ("RGB", "P", "RGBA", "RGB")[kind]
            image.convert(mode).save(inner / f"{kind}.{('jpg', 'gif', 'png', 'webp')[kind]}")
    return folder
