"""Roofline of a training step: every operator bound by arithmetic or by memory, whichever takes longer.

After Williams, Waterman and Patterson (CACM 52, 2009): an operator of F FLOP that must move M bytes takes at
least max(F / peak, M / bandwidth) seconds, with the peak of matrix work of its dtype and the bandwidth of a
copy measured on the same device. A step's roofline is the sum over the operators that torch runs; what fusing
them would save is not in it. Where maps fit a cache, an operator may beat its bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from benchmarks.limits import copy_bandwidth, matrix_peak
from benchmarks.outcome import Cell, Outcome, Table, median_of
from benchmarks.step import SMALL, compare, make_step
from benchmarks.turns import release_memory, rounds
from benchmarks.workload import Workload, device
from parashot.hardware import usable_cores
from parashot.parallel.abilities import precisions
from parashot.questions.text import number

WORKLOADS = (
    Workload("conv4", 84, 15, 2),
    Workload("bottleneck", 84, 15, 1),
    Workload("resnet12", 84, 1, 2),
)
"""batchsz is what two cores do in a second or a few: with 15 queries an episode is 80 images."""

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Op:
    """One call of an operator: its work, and the dtype it computes in."""

    name: str
    dtype: torch.dtype
    flop: int
    moved_bytes: int


@dataclass(frozen=True)
class Limits:
    """Measured limits of a device: FLOP/s of matrix work by dtype, bytes/s of a copy (read and written)."""

    peak_flops: Mapping[torch.dtype, float]
    bytes_per_second: float

    def arithmetic_seconds(self, ops: Sequence[Op]) -> float:
        """Seconds of the FLOPs alone. Raises `KeyError` where the peak of a dtype is unknown."""
        return math.fsum(op.flop / self.peak_flops[op.dtype] for op in ops if op.flop)

    def bound_seconds(self, ops: Sequence[Op]) -> float:
        """Sum of the operators' least times."""
        return math.fsum(
            max(self.arithmetic_seconds([op]), op.moved_bytes / self.bytes_per_second) for op in ops
        )


def run(quick: bool) -> Outcome:
    """Time our steps in the precisions of this device, and compare them with their rooflines."""
    sides, blocks = precisions(device().type), rounds(quick)
    achieved = {each: compare(each, sides, blocks).seconds for each in ((SMALL,) if quick else WORKLOADS)}
    return Outcome(
        "roofline",
        [shares(achieved, quick)],
        raw={each.name: seconds for each, seconds in achieved.items()},
        settings={"blocks": blocks, "threads": usable_cores(), "device": device().type},
    )


def shares(achieved: Mapping[Workload, Mapping[str, Sequence[float]]], quick: bool) -> Table:
    """Share of its roofline that each timed step reaches.

    achieved: seconds per step, block by block, by workload and precision; operators are recorded from one
    more step.
    """
    peaks = {side: matrix_peak(DTYPES[side], quick) for side in precisions(device().type)}
    limits = Limits({DTYPES[side]: peak for side, peak in peaks.items()}, copy_bandwidth(quick))
    rows: list[list[Cell]] = []
    for workload, seconds in achieved.items():
        for side, series in seconds.items():
            step = make_step(side, workload)
            step()  # the first sets up the optimizer's state
            ops = record(step)
            del step
            release_memory()
            work = (sum(op.flop for op in ops) / 1e9, sum(op.moved_bytes for op in ops) / 1e9)
            taken, bound = median_of(series), limits.bound_seconds(ops)
            shares_of_limits = (taken.reciprocal(bound), taken.reciprocal(limits.arithmetic_seconds(ops)))
            rows.append([workload.name, side, *work, bound * 1e3, taken.scaled(1e3), *shares_of_limits])
    said = ", ".join(f"{side} {number(peak / 1e9)} GFLOP/s" for side, peak in peaks.items())
    copies = number(limits.bytes_per_second / 1e9)
    title = f"Share of the roofline (matrix work: {said}; copies: {copies} GB/s)"
    columns = ["step", "precision", "GFLOP", "GB moved", "roofline (ms)", "achieved (ms)"]
    return Table(title, [*columns, "share of the roofline", "share of the matrix peak"], rows)


# --- recording ------------------------------------------------------------------------------------------


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
        read = _tensors((args, kwargs))
        written = _written(func, args, kwargs, result, read)
        if written:  # a view moves nothing
            formula = flop_registry.get(func.overloadpacket)  # 2 FLOP per multiply and add
            flop = int(formula(*args, **kwargs, out_val=result)) if formula else 0
            moved = sum(map(_distinct_bytes, [*{id(each): each for each in read}.values(), *written]))
            dtype = next(iter(_tensors(result)), written[0]).dtype
            self.ops.append(Op(func.overloadpacket.__name__, dtype, flop, moved))
        return result


def _written(func: Any, args: Any, kwargs: Any, result: Any, read: Sequence[Tensor]) -> list[Tensor]:
    """Tensors that a call changes in place, and results with memory of their own, unless it is left empty."""
    if "empty" in func.overloadpacket.__name__:
        return []
    arguments = func._schema.arguments
    values = {argument.name: value for argument, value in zip(arguments, args, strict=False)} | kwargs
    changed = [values.get(each.name) for each in arguments if each.alias_info and each.alias_info.is_write]
    known = {_memory(tensor) for tensor in read}
    return _tensors(changed) + [tensor for tensor in _tensors(result) if _memory(tensor) not in known]


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def _distinct_bytes(tensor: Tensor) -> int:
    """Bytes of a tensor in memory: an expanded dimension holds one and the same."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return tensor.element_size() * math.prod(size for size, stride in sizes if stride or size == 0)


def _memory(tensor: Tensor) -> int:
    """Address of the memory that a tensor and its views share."""
    return tensor.untyped_storage().data_ptr()
