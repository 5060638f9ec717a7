"""Roofline of a training step: every operator bound by arithmetic or by memory, whichever takes longer.

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

from benchmarks.limits import copy_bandwidth, matrix_peak
from benchmarks.outcome import Cell, Table, median_of
from benchmarks.turns import release_memory
from benchmarks.workload import Workload, device
from parashot.hardware import usable_cores
from parashot.questions.text import number

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""Sides that are held against a roofline, and the dtype of their matrix products."""

_STEP_COLUMNS = (
    "step",
    "precision",
    "GFLOP",
    "GB moved",
    "roofline (ms)",
    "achieved (ms)",
    "share of the roofline",
    "share of the matrix peak",
)
_OPERATOR_COLUMNS = ("operator", "calls", "GFLOP", "MB moved", "bound (ms)", "of the roofline")
_LEAST_SHARE = 0.01

_ALLOCATES = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
"""Operators whose result is not written yet."""

_OVERWRITES = {"copy_", "fill_", "zero_"}
"""Operators that write their first argument without reading it."""


@dataclass(frozen=True)
class Limits:
    """Measured limits of a device: FLOP/s of matrix work by dtype, bytes/s of a copy (read and written)."""

    peak_flops: Mapping[torch.dtype, float]
    bytes_per_second: float


@dataclass(frozen=True)
class Op:
    """One call of an operator: its work, and the dtype it computes in."""

    name: str
    dtype: torch.dtype
    flop: int
    moved_bytes: int


@dataclass(frozen=True)
class OpSum:
    """Several calls, of one operator or of a whole step, with their least times."""

    name: str
    calls: int
    flop: int
    moved_bytes: int
    matrix_seconds: float
    bound_seconds: float

    @classmethod
    def of(cls, name: str, ops: Sequence[Op], limits: Limits) -> OpSum:
        """Add up `ops` under `name`. Raises `KeyError` where the peak of a dtype is unknown."""
        arithmetic = [op.flop / limits.peak_flops[op.dtype] if op.flop else 0.0 for op in ops]
        memory = [op.moved_bytes / limits.bytes_per_second for op in ops]
        return cls(
            name,
            len(ops),
            sum(op.flop for op in ops),
            sum(op.moved_bytes for op in ops),
            math.fsum(arithmetic),
            math.fsum(map(max, arithmetic, memory)),
        )


def tables(
    achieved: Mapping[Workload, Mapping[str, Sequence[float]]],
    make_step: Callable[[str, Workload], Callable[[], object]],
) -> list[Table]:
    """Shares of the roofline of all timed steps, and the operators of each embedding's last workload.

    achieved: seconds per step, block by block, by workload and side; operators are recorded from one more
    step of `make_step(side, workload)`.
    """
    sides = [side for side in DTYPES if any(side in seconds for seconds in achieved.values())]
    limits = _measure_limits(sides)
    rows: list[Sequence[Cell]] = []
    operators: dict[tuple[str, str], Table] = {}
    for workload, seconds in achieved.items():
        for side in filter(seconds.__contains__, sides):
            step = make_step(side, workload)
            step()  # the first sets up the optimizer's state
            ops = record(step)
            del step
            release_memory()
            rows.append(_step_row(workload, side, OpSum.of("all", ops, limits), seconds[side]))
            operators[workload.embedding, side] = _operator_table(workload, side, ops, limits)
    peaks = ", ".join(f"{side} {number(limits.peak_flops[DTYPES[side]] / 1e9)} GFLOP/s" for side in sides)
    copies = number(limits.bytes_per_second / 1e9)
    title = f"Share of the roofline (matrix products: {peaks}; copies: {copies} GB/s)"
    return [Table(title, _STEP_COLUMNS, rows), *operators.values()]


def _measure_limits(sides: Iterable[str]) -> Limits:
    threads, where = usable_cores(), device().type
    kinds = ("product", "convolution")
    peaks = {DTYPES[side]: matrix_peak(kinds, DTYPES[side], threads, where) for side in sides}
    return Limits(peaks, copy_bandwidth(threads, where))


def _step_row(workload: Workload, side: str, step: OpSum, seconds: Sequence[float]) -> list[Cell]:
    achieved = median_of(seconds)
    return [
        workload.name,
        side,
        step.flop / 1e9,
        step.moved_bytes / 1e9,
        step.bound_seconds * 1e3,
        achieved.scaled(1e3),
        achieved.reciprocal(step.bound_seconds),
        achieved.reciprocal(step.matrix_seconds),
    ]


def _operator_table(workload: Workload, side: str, ops: Sequence[Op], limits: Limits) -> Table:
    """Operators with at least a hundredth of the roofline, the others in one row, and all."""
    step = OpSum.of("all", ops, limits)
    kinds = by_operator(ops)
    sums = sorted(
        (OpSum.of(name, kind, limits) for name, kind in kinds.items()),
        key=lambda each: each.bound_seconds,
        reverse=True,
    )
    shown = [each for each in sums if each.bound_seconds >= _LEAST_SHARE * step.bound_seconds]
    others = [op for each in sums[len(shown) :] for op in kinds[each.name]]
    rows = [
        (
            each.name,
            each.calls,
            each.flop / 1e9,
            each.moved_bytes / 1e6,
            each.bound_seconds * 1e3,
            each.bound_seconds / step.bound_seconds,
        )
        for each in (*shown, *([OpSum.of("others", others, limits)] if others else []), step)
    ]
    return Table(f"Roofline by operator: {workload.name}, {side}", _OPERATOR_COLUMNS, rows)


def by_operator(ops: Iterable[Op]) -> dict[str, list[Op]]:
    """Group calls by operator and dtype."""
    kinds: dict[str, list[Op]] = {}
    for op in ops:
        kinds.setdefault(f"{op.name}, {str(op.dtype).removeprefix('torch.')}", []).append(op)
    return kinds


def record(step: Callable[[], object]) -> list[Op]:
    """Call `step` and return the operators it ran, in order, those of its backward pass included."""
    recorder = _Recorder()
    with recorder:
        step()
    return recorder.ops


class _Recorder(TorchDispatchMode):
    """Records every operator below autograd and autocast, with the tensors that it really gets."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's modes carry no annotations
        self.ops: list[Op] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        read, written = _moved(func, args, kwargs, result)
        if written:  # a view moves nothing
            moved = sum(_distinct_bytes(each) for each in chain(read, written))
            dtype = next(_tensors(result), written[0]).dtype
            formula = flop_registry.get(func.overloadpacket)  # 2 FLOP per multiply and add
            flop = int(formula(*args, **kwargs, out_val=result)) if formula else 0
            self.ops.append(Op(func.overloadpacket.__name__, dtype, flop, moved))
        return result


def _moved(func: Any, args: Any, kwargs: Any, result: Any) -> tuple[list[Tensor], list[Tensor]]:
    """Tensors that a call reads and those that it writes, each once."""
    name = func.overloadpacket.__name__
    arguments = {argument.name: argument for argument in func._schema.arguments}
    read, written = {}, {}
    for key, value in chain(zip(arguments, args, strict=False), kwargs.items()):
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
    """Address of the memory that a tensor and its views share."""
    return tensor.untyped_storage().data_ptr()
