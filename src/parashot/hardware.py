"""What this machine is, and how much memory a tree of processes holds on it.

`inspect_hardware` reports stable facts only, so that two calls on one machine give equal answers. It is fast
because torch is imported only where an NVIDIA driver is visible.

Memory is counted as PSS (proportional set size: a page shared by n processes counts 1/n in each), so that the
sum over a tree is the memory the tree holds; a sum of RSS would count shared pages once per process.
"""

from __future__ import annotations

import os
import platform
import shutil
import threading
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from parashot.records import Hardware

ROOT = Path("/")


def inspect_hardware() -> Hardware:
    """Return what this machine is, as far as this process may use it (affinity and cgroup limits)."""
    gpus, cuda = _gpus()
    return Hardware(
        cpu_model=_cpu_model(),
        cores=usable_cores(),
        threads=usable_threads(),
        memory_gib=round(_usable_memory_bytes() / 2**30),
        gpus=gpus,
        platform=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        torch=metadata.version("torch"),
        cuda=cuda,
    )


def tree_memory_bytes(pid: int) -> int:
    """Return the memory of process `pid` and all its descendants in bytes: their summed PSS.

    RSS stands in where PSS cannot be read; a process that has vanished counts nothing.
    """
    try:
        root = psutil.Process(pid)
        tree = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    return sum(_memory_bytes(process) for process in tree)


class MemoryPeak:
    """`with MemoryPeak() as memory:` samples this process's tree; afterwards `memory.peak_bytes` is its peak.

    A sample walks the page tables of every process of the tree, so it belongs around a measurement, never
    inside a timed window.
    """

    def __init__(self, interval_seconds: float = 0.1) -> None:
        self.peak_bytes = 0
        self._interval_seconds = interval_seconds
        self._pid = os.getpid()
        self._done = threading.Event()
        self._sampler = threading.Thread(target=self._sample_until_done, name="memory-peak", daemon=True)

    def __enter__(self) -> Self:
        self._sample()
        self._sampler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._sampler.join()
        self._sample()

    def _sample_until_done(self) -> None:
        while not self._done.wait(self._interval_seconds):
            self._sample()

    def _sample(self) -> None:
        self.peak_bytes = max(self.peak_bytes, tree_memory_bytes(self._pid))


def _memory_bytes(process: psutil.Process) -> int:
    """PSS of one process, else its RSS, else 0."""
    try:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
    except OSError:
        pass
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _gpus() -> tuple[tuple[str, ...], str | None]:
    """Names of the CUDA devices, and the CUDA version that torch drives them with (None without a device)."""
    if shutil.which("nvidia-smi") is None and not Path("/proc/driver/nvidia").exists():
        return (), None
    import torch

    names = tuple(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
    return names, torch.version.cuda if names else None


def _cpu_model(root: Path = ROOT) -> str:
    lines = _lines(root / "proc/cpuinfo")
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


def usable_threads(root: Path = ROOT) -> int:
    """Hardware threads this process may run on; of a CPU quota, whole threads count."""
    quotas = [int(quota) for quota in _cpu_quotas(root)]
    return max(1, min([len(_affinity()), *quotas]))


def usable_cores(root: Path = ROOT) -> int:
    """Physical cores behind the usable hardware threads."""
    topology = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    siblings = {tuple(_words(root / topology.format(thread)) or [str(thread)]) for thread in _affinity()}
    return min(len(siblings), usable_threads(root))


def _affinity() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _usable_memory_bytes(root: Path = ROOT) -> int:
    """Physical memory, or the limit of this process's control group where that is lower."""
    return min([psutil.virtual_memory().total, *_memory_limits(root)])


def _cpu_quotas(root: Path) -> Iterator[float]:
    """Yield every limit on this process's CPU time, in hardware threads."""
    for group in _control_groups(root, "cpu"):
        limit = _words(group / "cpu.max")
        limit = limit or [*_words(group / "cpu.cfs_quota_us"), *_words(group / "cpu.cfs_period_us")]
        if len(limit) == 2 and limit[0] not in {"max", "-1"}:
            yield int(limit[0]) / int(limit[1])


def _memory_limits(root: Path) -> Iterator[int]:
    """Yield every limit on this process's memory, in bytes."""
    for group in _control_groups(root, "memory"):
        limit = _words(group / "memory.max") or _words(group / "memory.limit_in_bytes")
        if limit and limit[0] != "max":
            yield int(limit[0])


def _control_groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control groups (versions 2 and 1) and of all groups above them."""
    for membership in _lines(root / "proc/self/cgroup"):
        _, controllers, name = membership.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / (controller if controllers else "")
        group = mount / name.lstrip("/")
        yield from (group, *(above for above in group.parents if above.is_relative_to(mount)))


def _words(path: Path) -> list[str]:
    return " ".join(_lines(path)).split()


def _lines(path: Path) -> list[str]:
    """The lines of a file of the kernel, none where it is not there or not readable."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
