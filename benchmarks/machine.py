"""The latencies and limits of this machine that a strategy, a number of workers or a batch size depends on.

A loader's worker hands every batch to the training process: pickled through a pipe, or in shared memory made
for it, as torch's loaders do. An all-reduce is what data parallelism pays per step. A process that imports
torch is what every worker and every rank begins with.
"""

from __future__ import annotations

import mmap
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from multiprocessing.pool import Pool

import numpy as np
import torch
import torch.multiprocessing
from numpy.typing import NDArray

from benchmarks.limits import BEYOND_CACHE, DTYPES, copy_bandwidth, matrix_peak, timed
from benchmarks.outcome import Outcome, Table, median_of
from benchmarks.turns import rounds, seconds_of
from parashot.hardware import usable_cores
from parashot.parallel.context import Context, Placement, control_group
from parashot.parallel.launch import launch
from parashot.questions.scaling.measure import new_messages, time_round
from parashot.questions.scaling.records import CostMessage
from parashot.questions.text import counted
from parashot.questions.timed import in_turn

SIZES = (64 * 2**10, 2**20, 16 * 2**20)
"""Bytes of a small image, an episode, a batch."""

_CUDA = "cuda"

UNITS = {"s": 1.0, "µs": 1e6, "GB/s": 1e-9, "GFLOP/s": 1e-9}
"""By what a quantity in seconds, bytes or FLOP is multiplied."""


@dataclass(frozen=True)
class Probe:
    """One row: each call of `measure` measures it once more; `how` describes the work."""

    name: str
    unit: str
    measure: Callable[[], float]
    how: str = ""


def run(quick: bool) -> Outcome:
    """Measure one kind after the other, each in interleaved rounds: medians with 95% intervals."""
    with torch.multiprocessing.get_context("spawn").Pool(1) as pool:  # which hands over a tensor's memory
        sections = {
            "Compute": compute(quick),
            "Messages between two processes": messages(pool, quick),
            "All-reduce on the CPU": all_reduce("cpu", 2, quick),
            "CUDA": cuda(quick) if torch.cuda.is_available() else [],
        }
        tables, raw = [], {}
        for title, probes in sections.items():
            if probes:
                found = in_turn({each.name: each.measure for each in probes}, rounds(quick))
                rows = [
                    (each.name, median_of(found[each.name]).scaled(UNITS[each.unit]), each.unit, each.how)
                    for each in probes
                ]
                tables.append(Table(title, ("what", "median (95% interval)", "unit", "how"), rows))
                raw[title] = found
    settings = {"rounds": rounds(quick), "quick": quick, "threads": usable_cores()}
    return Outcome("machine", tables, raw, settings)


def compute(quick: bool) -> list[Probe]:
    """Copies, peaks of matrix work by type and threads, and what the smallest operations cost."""
    seconds, array_bytes = (0.001, 2**20) if quick else (0.2, BEYOND_CACHE)
    one, weight = torch.ones(1), torch.ones((), requires_grad=True)
    add = partial(torch.add, one, one, out=torch.empty(1))
    start = partial(subprocess.run, [sys.executable, "-c", "import torch"], check=True)

    def pass_both_ways() -> None:
        torch.autograd.grad(weight * 2, weight)

    probes = []
    for threads in sorted({1, usable_cores()}):
        said = counted(threads, "thread")
        bandwidth = partial(copy_bandwidth, threads, "cpu", array_bytes, seconds)
        how = f"{bytes_said(array_bytes)} read and as much written, both counted"
        probes.append(Probe(f"copy, {said}", "GB/s", bandwidth, how))
        for name, dtype in DTYPES.items():
            peak = partial(matrix_peak, dtype, threads, "cpu", seconds, quick)
            how = "the fastest of several products and convolutions"
            probes.append(Probe(f"matrix work, {said}, {name}", "GFLOP/s", peak, how))
    return [
        *probes,
        Probe("one small operator", "µs", _seconds(add, quick), "torch.add on one element"),
        Probe("its forward and backward pass", "µs", _seconds(pass_both_ways, quick), "one product"),
        Probe("start of a process that imports torch", "s", partial(seconds_of, start), "until it has ended"),
    ]


def _seconds(call: Callable[[], object], quick: bool) -> Callable[[], float]:
    """Seconds of a call among many in a row, until the device has done them all."""
    return lambda: float(timed(call, 0.001 if quick else 0.1).median)


def bytes_said(count: int) -> str:
    """Format a number of bytes in its largest whole unit: `1 B`, `4 KiB`, `16 MiB`."""
    if count < 2**10:
        return f"{count} B"
    return f"{count >> 10:,} KiB" if count < 2**20 else f"{count >> 20:,} MiB"


# --- between processes ----------------------------------------------------------------------------------


def messages(pool: Pool, quick: bool) -> list[Probe]:
    """Messages of every size to another process, which says that it has read each page."""
    probes = []
    for length in (1, *SIZES):
        source = torch.ones(length, dtype=torch.uint8)
        for way in ("pickled", "in a new shared tensor"):
            call = partial(send, pool, source, way == "pickled")
            how = "a call of a pool of one process, until its answer"
            probes.append(Probe(f"{bytes_said(length)} {way}", "µs", _seconds(call, quick), how))
    return probes


def send(pool: Pool, source: torch.Tensor, pickled: bool) -> int:
    """Send bytes to the process of `pool`, pickled or in new shared memory, and return its answer."""
    message = source.numpy() if pickled else source.clone()
    answer: int = pool.apply(page_sum, (message,))
    return answer


def page_sum(array: NDArray[np.uint8] | torch.Tensor) -> int:
    """Read a byte of each page."""
    return int(array[:: mmap.PAGESIZE].sum())


def all_reduce(device_type: str, ranks: int, quick: bool) -> list[Probe]:
    """All-reduces by size of message, as the stage strategy-bench times them, in a process per rank."""
    cores = usable_cores()
    placement = Placement(device_type, ranks, max(1, cores // ranks), cores)
    seconds: dict[int, list[float]] = {}
    for each in launch(time_all_reduces, placement, ranks, 1 + rounds(quick)) or []:
        seconds.setdefault(each.bytes, []).append(each.seconds / each.calls)
    probes = []
    for size, values in seconds.items():
        name = f"all-reduce of {bytes_said(size)}, {ranks} processes"
        probes.append(Probe(name, "µs", iter(values).__next__, placement.backend))
    return probes


def time_all_reduces(context: Context, blocks: int) -> list[CostMessage]:
    """Time every size in each round, on one rank."""
    control, sizes = control_group(context), new_messages(context)
    found = [time_round(context, {}, sizes, number, control) for number in range(blocks)]
    return [message for each in found for message in each.messages]


# --- CUDA -----------------------------------------------------------------------------------------------


def cuda(quick: bool) -> list[Probe]:
    """Launches, copies to the first device, its limits, and all-reduces between several."""
    seconds, largest = (0.001, 2**20) if quick else (0.5, 256 * 2**20)
    one = torch.ones(1, device=_CUDA)
    add = partial(torch.add, one, one, out=torch.empty_like(one))

    def add_and_wait() -> None:
        add()
        torch.cuda.synchronize()

    probes = [
        Probe("launch of a kernel, queued", "µs", _seconds(add, quick), "torch.add on one element"),
        Probe("launch of a kernel, waited for", "µs", _seconds(add_and_wait, quick), "the same"),
        Probe("copy on the device", "GB/s", partial(copy_bandwidth, 1, _CUDA, largest, seconds)),
    ]
    for name, dtype in DTYPES.items():
        if name != "bf16" or torch.cuda.is_bf16_supported(including_emulation=False):
            peak = partial(matrix_peak, dtype, 1, _CUDA, seconds, quick)
            probes.append(Probe(f"matrix work, {name}", "GFLOP/s", peak))
    for length, pinned in product(SIZES[:1] if quick else SIZES, (True, False)):
        host = torch.ones(length, dtype=torch.uint8, pin_memory=pinned)
        target = torch.empty(length, dtype=torch.uint8, device=_CUDA)
        copy = _seconds(partial(target.copy_, host, non_blocking=pinned), quick)
        name = f"host to device, {'pinned' if pinned else 'pageable'}, {bytes_said(length)}"
        probes.append(Probe(name, "µs", copy, "queued one after the other"))
    devices = torch.cuda.device_count()
    return probes + (all_reduce(_CUDA, devices, quick) if devices > 1 else [])
