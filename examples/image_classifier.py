"""ResNet-18 of torchvision on images that are made on the spot: computing is what a step takes its time for.

`parashot measure examples/image_classifier.py`
"""

import torch
from torch.nn import functional as F
from torchvision import datasets, models, transforms

batchsz = 16


def network():
    return models.resnet18(num_classes=10)


def dataset():
    return datasets.FakeData(2_000, (3, 64, 64), num_classes=10, transform=transforms.ToTensor())


def loss(network, batch):
    images, classes = batch
    return F.cross_entropy(network(images), classes)


def optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3)
