"""Relation heads g: how alike each query and each class are.

b episodes, n classes, q queries of an episode, C channels, h × w pixels. A head takes the `Pairs`, b q n maps
of 2C channels, and returns one score per pair, [b q n, 1], before the sigmoid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from torch import Tensor, nn

from parashot.model.embeddings import Block, Bottleneck, bottlenecks, conv_block
from parashot.model.norm import BatchNorm1d, BatchNorm2d
from parashot.model.pairing import Pairs
from parashot.model.precision import in_full_precision


class ConvHead(nn.Module):
    """Two pooled convolution blocks of 64, linear layers 576 to 8 to 1 (Sung et al., CVPR 2018, section 3.4).

    In the paper the last maps, of 84 pixels, are 3×3; an average over 3×3 fields makes them so for any size.
    Pools round up, so that a map of one pixel stays one.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.pair_conv = nn.Conv2d(2 * channels, 64, 3, padding=1, bias=False)
        self.pair_block = Block(BatchNorm2d(64), nn.MaxPool2d(2, ceil_mode=True), nn.ReLU(inplace=True))
        self.block = conv_block(64, 64, nn.MaxPool2d(2, ceil_mode=True))
        self.fields = nn.AdaptiveAvgPool2d(3)
        self.score = nn.Sequential(nn.Linear(576, 8), nn.ReLU(inplace=True), nn.Linear(8, 1))

    def forward(self, pairs: Pairs) -> Tensor:
        maps = self.fields(self.block(self.pair_block(pairs.convolve(self.pair_conv))))
        return in_full_precision(self.score, maps.flatten(1))


class BottleneckHead(nn.Module):
    """The study's: bottlenecks [4, 3] of 128 and 64 planes with stride 2, then linear layers 256 to 64 to 1.

    The study averages 3×3 fields, which leaves out a row and a column of the 4×4 maps of 224 pixels, and does
    not fit those of 84; here the average is over the whole map.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.pair_block = Bottleneck(2 * channels, planes=128, stride=2)
        self.wide = bottlenecks(3, 512, planes=128, stride=1)
        self.narrow = bottlenecks(3, 512, planes=64, stride=2)
        hidden = (nn.Linear(256, 64), BatchNorm1d(64), nn.ReLU(inplace=True))
        self.score = nn.Sequential(*hidden, nn.Linear(64, 1))

    def forward(self, pairs: Pairs) -> Tensor:
        block = self.pair_block
        shortcut = cast("nn.Conv2d", block.shortcut)  # it is one where a block has a stride
        maps = block.join(pairs.convolve(block.conv1), pairs.convolve(shortcut))
        maps = self.narrow(self.wide(maps))
        return in_full_precision(self.score, maps.mean(dim=(2, 3)))


HEADS: dict[str, Callable[[int], nn.Module]] = {"bottleneck": BottleneckHead}
"""By the name of `model.embedding`, built for its number of channels; all others have a `ConvHead`."""
