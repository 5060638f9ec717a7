"""Embeddings f: images to maps, for square images of 16 pixels or more.

m images, C channels of a map, h × w pixels. Each turns images [m, 3, h, w] into maps [m, C, h', w'] and tells
its number of `channels` C. No convolution has a bias where a batch norm follows: the norm takes it away.
A max-pool stands before its activation, which is monotonic: the same function, and less to activate.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from torch import Tensor, nn

from parashot.model.norm import BatchNorm2d
from parashot.model.recompute import Recomputable

BOTTLENECK_EXPANSION = 4
"""Channels out of a bottleneck per plane inside it (He et al., CVPR 2016)."""


class Embedding(nn.Sequential):
    """Layers from images [m, 3, h, w] to maps [m, `channels`, h', w']."""

    def __init__(self, channels: int, *layers: nn.Module) -> None:
        super().__init__(*layers)
        self.channels = channels


def conv4() -> Embedding:
    """Four 3×3 convolutions of 64, the first two pooled (Sung et al., CVPR 2018, section 3.4); h' = h / 4.

    The paper pads only the last two; here all are padded by 1, so that images of any size keep a map.
    """
    pooled = (conv_block(3, 64, nn.MaxPool2d(2)), conv_block(64, 64, nn.MaxPool2d(2)))
    return Embedding(64, *pooled, conv_block(64, 64), conv_block(64, 64))


def conv4_pooled() -> Embedding:
    """Four 3×3 convolutions of 64, all pooled (Chen et al., A Closer Look, ICLR 2019); h' = h / 16.

    It sees twice as far as `conv4`, and its maps are a sixteenth: what compares them costs next to nothing.
    """
    return Embedding(64, *(conv_block(channels, 64, nn.MaxPool2d(2)) for channels in (3, 64, 64, 64)))


def bottleneck() -> Embedding:
    """The study's: a ResNet of bottlenecks [3, 4, 6] of 64, 128 and 256 planes; C = 1024, h' = h / 16.

    Its first activation is a sigmoid, where ResNets (He et al., CVPR 2016) have a ReLU.
    """
    convolution = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
    stem = Block(convolution, BatchNorm2d(64), nn.MaxPool2d(3, stride=2, padding=1), nn.Sigmoid())
    first = bottlenecks(3, 64, planes=64, stride=1)
    second = bottlenecks(4, 256, planes=128, stride=2)
    third = bottlenecks(6, 512, planes=256, stride=2)
    return Embedding(1024, stem, first, second, third)


def resnet12() -> Embedding:
    """Four residual blocks of three 3×3 convolutions, 64 to 512 channels; C = 512, h' = h / 16.

    Oreshkin et al., TADAM, NeurIPS 2018; with the LeakyReLU of Chen et al., Meta-Baseline, ICCV 2021.
    """
    return _residual(64, 128, 256, 512)


def resnet12_wide() -> Embedding:
    """The same with 64 to 640 channels (Lee et al., MetaOptNet, CVPR 2019); C = 640, h' = h / 16."""
    return _residual(64, 160, 320, 640)


def _residual(*channels: int) -> Embedding:
    return Embedding(channels[-1], *(ResidualBlock(*each) for each in pairwise((3, *channels))))


class Block(nn.Sequential, Recomputable):
    """Layers in a row."""

    def forward(self, maps: Tensor) -> Tensor:
        return self.recomputed(super().forward, maps)


def conv_block(in_channels: int, out_channels: int, *pool: nn.Module) -> Block:
    """3×3 convolution, batch norm, a pool if there is one, ReLU."""
    convolution = nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=False)
    return Block(convolution, BatchNorm2d(out_channels), *pool, nn.ReLU(inplace=True))


def bottlenecks(count: int, in_channels: int, planes: int, stride: int) -> nn.Sequential:
    """A group of `count` bottlenecks, the first with `stride`; gives 4 × `planes` channels."""
    out_channels = BOTTLENECK_EXPANSION * planes
    rest = (Bottleneck(out_channels, planes, stride=1) for _ in range(count - 1))
    return nn.Sequential(Bottleneck(in_channels, planes, stride), *rest)


class Bottleneck(Recomputable):
    """1×1, 3×3 (with the stride) and 1×1 convolutions around a shortcut (He et al., CVPR 2016, figure 5)."""

    def __init__(self, in_channels: int, planes: int, stride: int) -> None:
        super().__init__()
        out_channels = BOTTLENECK_EXPANSION * planes
        self.conv1 = nn.Conv2d(in_channels, planes, 1, bias=False)
        self.norm1 = BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride, padding=1, bias=False)
        self.norm2 = BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, out_channels, 1, bias=False)
        self.norm3 = BatchNorm2d(out_channels)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        self.shortcut_norm: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Conv2d(in_channels, out_channels, 1, stride, bias=False)
            self.shortcut_norm = BatchNorm2d(out_channels)

    def forward(self, maps: Tensor) -> Tensor:
        """Maps [m, in_channels, h, w] to [m, 4 planes, h / stride, w / stride]."""
        return self.join(self.conv1(maps), self.shortcut(maps))

    def join(self, first: Tensor, shortcut: Tensor) -> Tensor:
        """All that follows the convolutions of the input, so that these can be computed in another way."""
        return self.recomputed(self._join, first, shortcut)

    def _join(self, first: Tensor, shortcut: Tensor) -> Tensor:
        maps = self.relu(self.norm1(first))
        maps = self.relu(self.norm2(self.conv2(maps)))
        result: Tensor = self.relu(self.norm3(self.conv3(maps)) + self.shortcut_norm(shortcut))
        return result


class ResidualBlock(Recomputable):
    """Three 3×3 convolutions around a 1×1 shortcut, 2×2 max-pool, LeakyReLU of slope 0.1."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for channels in (in_channels, out_channels, out_channels):
            convolution = nn.Conv2d(channels, out_channels, 3, padding=1, bias=False)
            layers += [convolution, BatchNorm2d(out_channels), nn.LeakyReLU(0.1, inplace=True)]
        self.residual = nn.Sequential(*layers[:-1])  # the last activation comes after the sum
        shortcut = nn.Conv2d(in_channels, out_channels, 1, bias=False)
        self.shortcut = nn.Sequential(shortcut, BatchNorm2d(out_channels))
        self.after = nn.Sequential(nn.MaxPool2d(2), nn.LeakyReLU(0.1, inplace=True))

    def forward(self, maps: Tensor) -> Tensor:
        """Maps [m, in_channels, h, w] to [m, out_channels, h / 2, w / 2]."""
        return self.recomputed(self._add, maps)

    def _add(self, maps: Tensor) -> Tensor:
        result: Tensor = self.after(self.residual(maps) + self.shortcut(maps))
        return result


EMBEDDINGS: dict[str, Callable[[], Embedding]] = {
    "conv4": conv4,
    "conv4_pooled": conv4_pooled,
    "bottleneck": bottleneck,
    "resnet12": resnet12,
    "resnet12_wide": resnet12_wide,
}
"""By the name of `model.embedding`."""
