"""Steps that were timed, against their roofline: operators recorded from one more step of the same kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from benchmarks.limits import copy_bandwidth, matrix_peak_flops
from benchmarks.outcome import RESAMPLING, Cell, Table
from benchmarks.roofline import Limits, Op, OpSum, by_operator, record, total
from benchmarks.step_sides import device, make_step
from benchmarks.turns import release_memory
from benchmarks.workload import Workload
from parashot.hardware import usable_cores
from parashot.questions.statistics import Interval, median_interval
from parashot.questions.text import number

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""The sides that are held against a roofline, and what their matrix products compute in."""

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


def tables(achieved: Mapping[Workload, Mapping[str, Sequence[float]]]) -> list[Table]:
    """Shares of all steps, from their seconds block by block; operators of each embedding's last workload."""
    limits = measure_limits({side for seconds in achieved.values() for side in seconds})
    rows: list[Sequence[Cell]] = []
    operators: dict[tuple[str, str], Table] = {}
    for workload, seconds in achieved.items():
        for side in filter(seconds.__contains__, _DTYPES):
            ops = _record(side, workload)
            rows.append(_step_row(workload, side, total(side, ops, limits), seconds[side]))
            operators[workload.embedding, side] = _operator_table(workload, side, ops, limits)
    return [Table(_title(limits), _STEP_COLUMNS, rows), *operators.values()]


def measure_limits(sides: set[str]) -> Limits:
    """What this device does at best in the dtypes of `sides`."""
    dtypes = [dtype for side, dtype in _DTYPES.items() if side in sides]
    threads, where = usable_cores(), device().type
    peaks = {dtype: matrix_peak_flops(dtype, threads, where) for dtype in dtypes}
    return Limits(peaks, copy_bandwidth(threads, where))


def _record(side: str, workload: Workload) -> list[Op]:
    """Operators of a step that is not the first, which sets up the optimizer's state."""
    step = make_step(side, workload)
    step()
    ops = record(step)
    del step
    release_memory()
    return ops


def _step_row(workload: Workload, side: str, step: OpSum, seconds: Sequence[float]) -> list[Cell]:
    achieved = median_interval(seconds, RESAMPLING)
    return [
        workload.name,
        side,
        step.flop / 1e9,
        step.moved_bytes / 1e9,
        step.bound_seconds * 1e3,
        achieved.scaled(1e3),
        _share(step.bound_seconds, achieved),
        _share(step.matrix_seconds, achieved),
    ]


def _share(at_best: float, achieved: Interval) -> Interval:
    return achieved.reciprocal(at_best)


def _operator_table(workload: Workload, side: str, ops: Sequence[Op], limits: Limits) -> Table:
    """Operators with at least a hundredth of the roofline, the others in one row, and all."""
    step = total("all", ops, limits)
    sums = by_operator(ops, limits)
    shown = [each for each in sums if each.bound_seconds >= _LEAST_SHARE * step.bound_seconds]
    rest = sums[len(shown) :]
    rows = [_operator_row(each, step) for each in (*shown, *_others(rest), step)]
    return Table(f"Roofline by operator: {workload.name}, {side}", _OPERATOR_COLUMNS, rows)


def _others(sums: Sequence[OpSum]) -> list[OpSum]:
    return [OpSum.of("others", sums)] if sums else []


def _operator_row(each: OpSum, step: OpSum) -> list[Cell]:
    return [
        each.name,
        each.calls,
        each.flop / 1e9,
        each.moved_bytes / 1e6,
        each.bound_seconds * 1e3,
        each.bound_seconds / step.bound_seconds,
    ]


def _title(limits: Limits) -> str:
    peaks = (
        f"{side} {number(limits.peak_flops[dtype] / 1e9)} GFLOP/s"
        for side, dtype in _DTYPES.items()
        if dtype in limits.peak_flops
    )
    return (
        f"Share of the roofline (matrix products: {', '.join(peaks)}; "
        f"copies: {number(limits.bytes_per_second / 1e9)} GB/s)"
    )
