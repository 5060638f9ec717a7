"""How fast a step could be at best: every operator bound by arithmetic or by memory, whichever takes longer.

The roofline model (Williams, Waterman and Patterson, CACM 52, 2009), operator by operator: an operator of F
FLOP that must move M bytes takes at least max(F / peak, M / bandwidth) seconds, with the peak of a matrix
product of its dtype and the bandwidth of a copy, both measured on the same device. Least bytes: inputs read
once, outputs written once. A step's roofline is the sum over the operators that torch runs, forward, backward
and optimizer; what fusing them would save is not in it. Where maps fit a cache, an operator may beat its
bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

_ALLOCATES = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
"""Operators whose result is not written yet."""

_OVERWRITES = {"copy_", "fill_", "zero_"}
"""Operators that write their first argument without reading it."""


@dataclass(frozen=True)
class Limits:
    """What a device was measured to do at best."""

    peak_flops: Mapping[torch.dtype, float]
    """FLOP/s of a large matrix product."""
    bytes_per_second: float
    """Of a large copy, read and written bytes counted."""


@dataclass(frozen=True)
class Op:
    """One call of an operator: its work, and the dtype it computes in."""

    name: str
    dtype: torch.dtype
    flop: int
    moved_bytes: int

    def alone(self, limits: Limits) -> OpSum:
        """This call by itself, with its least times."""
        arithmetic = self.flop / limits.peak_flops[self.dtype] if self.flop else 0.0
        bound = max(arithmetic, self.moved_bytes / limits.bytes_per_second)
        return OpSum(self.name, 1, self.flop, self.moved_bytes, arithmetic, bound)


@dataclass(frozen=True)
class OpSum:
    """Several calls: those of one operator in one dtype, or of a whole step."""

    name: str
    calls: int
    flop: int
    moved_bytes: int
    matrix_seconds: float
    bound_seconds: float

    @classmethod
    def of(cls, name: str, parts: Sequence[OpSum]) -> OpSum:
        """Add up `parts` under `name`."""
        return cls(
            name,
            sum(each.calls for each in parts),
            sum(each.flop for each in parts),
            sum(each.moved_bytes for each in parts),
            math.fsum(each.matrix_seconds for each in parts),
            math.fsum(each.bound_seconds for each in parts),
        )


def record(step: Callable[[], object]) -> list[Op]:
    """Call `step` and return the operators it ran, in order, those of its backward pass included."""
    recorder = _Recorder()
    with recorder:
        step()
    return recorder.ops


def total(name: str, ops: Iterable[Op], limits: Limits) -> OpSum:
    """Add up `ops` under `name`. Raises `KeyError` where the peak of a dtype is unknown."""
    return OpSum.of(name, [op.alone(limits) for op in ops])


def by_operator(ops: Sequence[Op], limits: Limits) -> list[OpSum]:
    """Sums by operator and dtype, the longest bound first. Raises `KeyError` as `total` does."""
    kinds: dict[str, list[Op]] = {}
    for op in ops:
        kinds.setdefault(f"{op.name}, {str(op.dtype).removeprefix('torch.')}", []).append(op)
    sums = (total(name, kind, limits) for name, kind in kinds.items())
    return sorted(sums, key=lambda each: each.bound_seconds, reverse=True)


class _Recorder(TorchDispatchMode):
    """Sees every operator below autograd and autocast, with the tensors that it really gets."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's modes carry no annotations
        self.ops: list[Op] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        read, written = _moved(func, args, kwargs, result)
        if written:  # a view moves nothing
            name = func.overloadpacket.__name__
            moved = sum(_distinct_bytes(each) for each in chain(read, written))
            dtype = next(_tensors(result), written[0]).dtype
            self.ops.append(Op(name, dtype, _flop(func, args, kwargs, result), moved))
        return result


def _flop(func: Any, args: Any, kwargs: Any, result: Any) -> int:
    """FLOP of a convolution or matrix product by torch's own formulas (2 per multiply and add), else 0."""
    formula = flop_registry.get(func.overloadpacket)
    return int(formula(*args, **kwargs, out_val=result)) if formula else 0


def _moved(func: Any, args: Any, kwargs: Any, result: Any) -> tuple[list[Tensor], list[Tensor]]:
    """Tensors that a call reads and those that it writes, each once."""
    name = func.overloadpacket.__name__
    arguments = {argument.name: argument for argument in func._schema.arguments}
    given = chain(zip(arguments, args, strict=False), kwargs.items())
    read, written = {}, {}
    for key, value in given:
        alias = arguments[key].alias_info
        changed = alias is not None and alias.is_write
        for tensor in _tensors(value):
            if changed:
                written[id(tensor)] = tensor
            if not (changed and name in _OVERWRITES):
                read[id(tensor)] = tensor
    if name not in _ALLOCATES:
        known = {_memory(tensor) for tensor in (*read.values(), *written.values())}
        written.update({id(tensor): tensor for tensor in _tensors(result) if _memory(tensor) not in known})
    return list(read.values()), list(written.values())


def _tensors(value: Any) -> Iterator[Tensor]:
    return (leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor))


def _distinct_bytes(tensor: Tensor) -> int:
    """Bytes of a tensor in memory: an expanded dimension holds one and the same."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return tensor.element_size() * math.prod(size for size, stride in sizes if stride or size == 0)


def _memory(tensor: Tensor) -> int:
    """Where a tensor and its views lie."""
    return tensor.untyped_storage().data_ptr()
