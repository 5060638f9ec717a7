"""Which layers of a Relation Network are cut along which channels, for `parallel/channel_split.py`.

A *column* layer computes a share of its output channels, a *row* layer takes a share of its input channels;
they alternate, and where the layer that follows wants all channels at once they are gathered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from torch import nn

from parashot.model.embeddings import Block, Bottleneck, ResidualBlock
from parashot.model.network import RelationNetwork
from parashot.model.relation import BottleneckHead, ConvHead

if TYPE_CHECKING:
    from parashot.parallel.channel_split import Cutter


def cut_channels(network: RelationNetwork, cutter: Cutter) -> None:
    """Cut every convolution and linear layer of `network`, whose head is no residual one."""
    head = cast("ConvHead | BottleneckHead", network.relation)
    for module in network.modules():
        if isinstance(module, Bottleneck):
            _bottleneck(module, cutter, of_pairs=module is getattr(head, "pair_block", None))
        elif isinstance(module, ResidualBlock):
            _residual(module, cutter)
    _blocks([each for each in network.embedding if isinstance(each, Block)], cutter)
    if isinstance(head, ConvHead):
        cutter.column(head.pair_conv, copied=False)
        cutter.norm(head.pair_block[0])
        cutter.row(head.block[0])
    _scores(head.score, cutter)
    # the head's first convolutions are never called themselves (model.pairing): their input is copied here
    cutter.copy_output(network.embedding)


def _blocks(blocks: list[Block], cutter: Cutter) -> None:
    """Blocks of one convolution each, two by two; a last one by itself is gathered."""
    for number, block in enumerate(blocks):
        if number % 2:
            cutter.row(block[0])
        else:
            cutter.column(block[0])
            cutter.norm(block[1])
    if len(blocks) % 2:
        cutter.gather(blocks[-1], blocks[-1][1])


def _bottleneck(block: Bottleneck, cutter: Cutter, *, of_pairs: bool) -> None:
    """First convolution: column, gathered; second and third: column and row; shortcut: like the first."""
    cutter.column(block.conv1, copied=not of_pairs)
    cutter.gather(block.norm1, block.norm1)
    cutter.norm(block.norm1)
    cutter.column(block.conv2)
    cutter.norm(block.norm2)
    cutter.row(block.conv3)
    if isinstance(block.shortcut_norm, nn.BatchNorm2d):
        cutter.column(block.shortcut, copied=not of_pairs)
        cutter.gather(block.shortcut_norm, block.shortcut_norm)
        cutter.norm(block.shortcut_norm)


def _residual(block: ResidualBlock, cutter: Cutter) -> None:
    """Three convolutions: column, row, and column gathered; the shortcut like the last."""
    first, first_norm, _, second, _, _, third, third_norm = block.residual
    cutter.column(first)
    cutter.norm(first_norm)
    cutter.row(second)
    for convolution, norm in ((third, third_norm), tuple(block.shortcut)):
        cutter.column(convolution)
        cutter.gather(norm, norm)
        cutter.norm(norm)


def _scores(layers: nn.Sequential, cutter: Cutter) -> None:
    """Two linear layers, with what lies between them."""
    first, *between, last = layers
    cutter.column(first)
    for each in between:
        if isinstance(each, nn.BatchNorm1d):
            cutter.norm(each)
    cutter.row(last)
