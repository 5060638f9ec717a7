"""Collectives that strategies call by hand."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import reduce
from typing import TypeVar

import torch
from torch import Tensor
from torch import distributed as dist
from torch.nn import functional as F

from parashot.parallel.context import Context
from parashot.task import even_share

T = TypeVar("T")


def from_all_ranks(mine: T, context: Context, *, patient: bool = False) -> list[T]:
    """Gather an object of every rank, by rank. Every rank calls it.

    patient: a rank may be waited for as long as `Context.control` allows, else as long as any collective.
    """
    everyone = [mine] * context.world_size
    if context.world_size > 1:
        dist.all_gather_object(everyone, mine, group=(context.control if patient else None) or context.group)
    return everyone


def same_on_all_ranks(tensors: Iterable[Tensor], context: Context) -> bool:
    """Return whether all ranks hold the same values, bit for bit. Every rank calls it."""
    digest = hashlib.sha256()
    for value in tensors:
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return len(set(from_all_ranks(digest.digest(), context))) == 1


@torch.no_grad()
def broadcast_from_main(tensors: Iterable[Tensor], context: Context) -> None:
    """Give every rank the main one's values, in place."""
    for value in tensors:
        dist.broadcast(value, group=context.group, group_src=0)


@torch.no_grad()
def sum_in_one_message(tensors: list[Tensor], context: Context, share: float = 1.0) -> None:
    """Sum tensors over the ranks in place, each rank's multiplied by its `share`."""
    widest = reduce(torch.promote_types, (each.dtype for each in tensors))
    flat = tensors[0].new_empty(sum(each.numel() for each in tensors), dtype=widest)
    pieces = flat.split([each.numel() for each in tensors])
    views = [piece.view(each.shape) for piece, each in zip(pieces, tensors, strict=True)]
    torch._foreach_copy_(views, tensors)
    if share != 1.0:
        flat.mul_(share)
    dist.all_reduce(flat, group=context.group)
    torch._foreach_copy_(tensors, views)


def gather_parts(part: Tensor, dim: int, size: int, context: Context) -> Tensor:
    """Join the `even_share`s of `size` along `dim`, in the order of ranks. Every rank gets the whole."""
    ranks = range(context.world_size)
    lengths = [len(range(size)[even_share(size, rank, context.world_size)]) for rank in ranks]
    mine = F.pad(part.movedim(dim, -1), (0, lengths[0] - part.shape[dim])).contiguous()  # of one size in all
    parts = [torch.empty_like(mine) for _ in lengths]
    dist.all_gather(parts, mine, group=context.group)
    own = [each[..., :length].movedim(-1, dim) for each, length in zip(parts, lengths, strict=True)]
    return torch.cat(own, dim)
