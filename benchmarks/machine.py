"""The latency numbers of this machine: what a user of parallel training should know by heart."""

from __future__ import annotations

from benchmarks import (
    machine_allreduce,
    machine_compute,
    machine_cuda,
    machine_disk,
    machine_memory,
    machine_messages,
)
from benchmarks.limits import last_cache_bytes
from benchmarks.outcome import Outcome
from benchmarks.probes import rounds
from parashot.hardware import usable_cores

SECTIONS = {
    "memory": machine_memory,
    "disk": machine_disk,
    "messages": machine_messages,
    "compute": machine_compute,
    "all-reduce": machine_allreduce,
    "cuda": machine_cuda,
}
"""In the order of the tables; each has `measure(quick) -> Section`."""


def run(quick: bool) -> Outcome:
    """Measure one kind after the other, each in interleaved rounds: medians with 95% intervals."""
    sections = {name: module.measure(quick) for name, module in SECTIONS.items()}
    return Outcome(
        benchmark="machine",
        tables=[table for section in sections.values() for table in section.tables],
        raw={name: dict(section.raw) for name, section in sections.items()},
        settings={
            "rounds": rounds(quick),
            "quick": quick,
            "threads": usable_cores(),
            "last_cache_bytes": last_cache_bytes(),
        },
    )
