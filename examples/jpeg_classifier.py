"""A small network on large JPEGs, which are decoded in every step: the loader is what a step waits for.

The images are drawn once, into a temporary folder. `parashot measure examples/jpeg_classifier.py`
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

FOLDER = Path(tempfile.gettempdir()) / "parashot-example-jpegs"
CLASSES, IMAGES, PIXELS = 4, 128, 640

batchsz = 32


class Photographs(Dataset):
    """JPEGs of PIXELS pixels in one folder, shrunk to 64; the class stands first in the name."""

    def __init__(self, folder):
        self.files = sorted(folder.glob("*.jpg"))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        image = Image.open(self.files[index]).convert("RGB").resize((64, 64))
        pixels = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1) / 255
        return pixels, int(self.files[index].name[0])


def draw_images():
    FOLDER.mkdir(exist_ok=True)
    for index in range(IMAGES):
        file = FOLDER / f"{index % CLASSES}-{index}.jpg"
        if not file.exists():
            noise = np.random.default_rng(index).integers(0, 256, (PIXELS, PIXELS, 3), dtype=np.uint8)
            noise[..., : index % CLASSES] //= 2
            Image.fromarray(noise).save(file, quality=90)


def network():
    layers = [nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, CLASSES))


def dataset():
    draw_images()
    return Photographs(FOLDER)


def loss(network, batch):
    images, classes = batch
    return F.cross_entropy(network(images), classes)


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
