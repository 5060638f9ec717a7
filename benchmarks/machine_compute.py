"""Computing on this machine's processor: peaks of matrix work, and what the smallest operation costs."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import product
from statistics import median

import torch

from benchmarks.limits import Shapes, Way, affordable, matrix_ways, using_threads
from benchmarks.outcome import RESAMPLING, Cell, Table
from benchmarks.probes import Probe, Section, Series, block_seconds, in_turn, listing, seconds_per_call
from parashot.hardware import usable_cores
from parashot.questions.statistics import median_interval
from parashot.questions.text import counted

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

_QUICK_SHAPES = Shapes(squares=(32, 64), images=1, channels=8, pixels=8)
_AT_LEAST_SECONDS = 0.1
_LONGEST_CALL_SECONDS = 1.0


def measure(quick: bool) -> Section:
    """Matrix products and convolutions by type and threads, then small operations; each kind in turn."""
    matrices = _matrices(quick)
    small = [_add(quick), _forward_backward(quick), _process_start()]
    rates = in_turn([probe for group in matrices.values() for probe in group], quick)
    operations = in_turn(small, quick)
    tables = [_peaks(matrices, rates), listing("Small operations and processes", small, operations)]
    return Section(tables, {**rates, **operations})


Setting = tuple[str, str, str]
"""A kind of matrix work, threads, a type."""


def _matrices(quick: bool) -> dict[Setting, list[Probe]]:
    """Ways of each setting; those that would take seconds (a type without instructions here) are left out."""
    groups: dict[Setting, list[Probe]] = {}
    for dtype, threads in product(DTYPES, sorted({1, usable_cores()})):
        ways = matrix_ways(DTYPES[dtype], shapes=_QUICK_SHAPES if quick else None)
        with using_threads(threads):
            ways = affordable(ways, "cpu", _LONGEST_CALL_SECONDS)
        for way in ways:
            setting = (way.kind, counted(threads, "thread"), dtype)
            groups.setdefault(setting, []).append(_matrix(way, threads, dtype, quick))
    return groups


def _matrix(way: Way, threads: int, dtype: str, quick: bool) -> Probe:
    def gigaflops() -> float:
        with using_threads(threads):
            seconds = seconds_per_call(way.call, block_seconds(quick, _AT_LEAST_SECONDS))
        return way.amount / seconds / 1e9

    return Probe(f"{way.name}, {counted(threads, 'thread')}, {dtype}", "GFLOP/s", gigaflops)


def _peaks(matrices: Mapping[Setting, Sequence[Probe]], rates: Series) -> Table:
    """A row per kind and threads, a column per type: the way of the highest median."""

    def peak(kind: str, threads: str, dtype: str) -> Cell:
        series = [rates[probe.name] for probe in matrices.get((kind, threads, dtype), ())]
        return median_interval(max(series, key=median), RESAMPLING) if series else None

    rows = [
        [kind, threads, *(peak(kind, threads, dtype) for dtype in DTYPES)]
        for kind, threads in dict.fromkeys((kind, threads) for kind, threads, _ in matrices)
    ]
    columns = ("the fastest", "threads", *(f"{dtype}, GFLOP/s" for dtype in DTYPES))
    return Table("Matrix work: the fastest of several sizes", columns, rows)


def _add(quick: bool) -> Probe:
    one, result = torch.ones(1), torch.empty(1)

    def nanoseconds() -> float:
        seconds = seconds_per_call(
            lambda: torch.add(one, one, out=result), block_seconds(quick, _AT_LEAST_SECONDS)
        )
        return 1e9 * seconds

    return Probe("one small operator", "ns", nanoseconds, "torch.add on one element, no new memory")


def _forward_backward(quick: bool) -> Probe:
    weight, value = torch.ones((), requires_grad=True), torch.ones(())

    def nanoseconds() -> float:
        seconds = seconds_per_call(
            lambda: torch.autograd.grad(weight * value, weight), block_seconds(quick, _AT_LEAST_SECONDS)
        )
        return 1e9 * seconds

    return Probe(
        "its forward and backward pass", "ns", nanoseconds, "autograd through one product of two scalars"
    )


def _process_start() -> Probe:
    def seconds() -> float:
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import torch"], check=True)
        return time.perf_counter() - begin

    return Probe("start of a process that imports torch", "s", seconds, "until it has ended")
