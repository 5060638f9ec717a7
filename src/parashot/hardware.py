"""Facts of this machine, and the memory of a tree of processes.

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
from typing import Self

import psutil

from parashot.records import Hardware

ROOT = Path("/")


def inspect_hardware() -> Hardware:
    """Return the stable facts of this machine, as far as this process may use it (affinity, cgroup limits).

    Two calls on one machine give equal answers. torch is imported only where an NVIDIA driver is visible.
    """
    gpus, cuda = _gpus()
    return Hardware(
        cpu_model=_cpu_model(),
        cores=usable_cores(),
        threads=usable_threads(),
        memory_gib=round(usable_memory_bytes() / 2**30),
        gpus=gpus,
        platform=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        torch=metadata.version("torch"),
        cuda=cuda,
    )


def has_nvidia_driver() -> bool:
    """Whether an NVIDIA driver is visible; torch may not be able to use it."""
    return shutil.which("nvidia-smi") is not None or Path("/proc/driver/nvidia").exists()


def tree_memory_bytes(pid: int) -> int:
    """Return the summed PSS of process `pid` and all its descendants in bytes.

    RSS stands in where PSS cannot be read; a process that has vanished counts nothing.
    """
    try:
        root = psutil.Process(pid)
        return sum(_memory_bytes(each) for each in [root, *root.children(recursive=True)])
    except psutil.NoSuchProcess:
        return 0


class MemoryPeak:
    """Context manager that samples the memory of this process's tree; `peak_bytes` is the highest sample.

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

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._sampler.join()
        self._sample()

    def _sample_until_done(self) -> None:
        while not self._done.wait(self._interval_seconds):
            self._sample()

    def _sample(self) -> None:
        self.peak_bytes = max(self.peak_bytes, tree_memory_bytes(self._pid))


def _memory_bytes(process: psutil.Process) -> int:
    """Return the PSS of one process, else its RSS, else 0."""
    try:
        return int(process.memory_full_info().pss)
    except psutil.AccessDenied:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def _gpus() -> tuple[tuple[str, ...], str | None]:
    """Return the names of the CUDA devices, and torch's CUDA version (None without a device)."""
    if not has_nvidia_driver():
        return (), None
    import torch

    names = tuple(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
    return names, torch.version.cuda if names else None


def _cpu_model() -> str:
    lines = _words(ROOT / "proc/cpuinfo", separator="\n")
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


# --- limits of affinity and control groups ------------------------------------------------------------


def usable_threads(root: Path = ROOT) -> int:
    """Return the number of hardware threads this process may run on; a CPU quota is rounded down."""
    return max(1, min([len(os.sched_getaffinity(0)), *_cpu_quotas(root)]))


def usable_cores(root: Path = ROOT) -> int:
    """Return the number of physical cores behind the usable hardware threads."""
    topology = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    threads = os.sched_getaffinity(0)
    siblings = {" ".join(_words(root / topology.format(each))) or str(each) for each in threads}
    return min(len(siblings), usable_threads(root))


def usable_memory_bytes(root: Path = ROOT) -> int:
    """Return the physical memory, or the limit of this process's control group where that is lower."""
    limits = [
        int(limit[0])
        for group in _control_groups(root, "memory")
        if (limit := _words(group / "memory.max") or _words(group / "memory.limit_in_bytes"))
        and limit[0] != "max"
    ]
    return min([psutil.virtual_memory().total, *limits])


def _cpu_quotas(root: Path) -> Iterator[int]:
    """Yield every limit on this process's CPU time, in whole hardware threads."""
    for group in _control_groups(root, "cpu"):
        limit = _words(group / "cpu.max")
        limit = limit or [*_words(group / "cpu.cfs_quota_us"), *_words(group / "cpu.cfs_period_us")]
        if len(limit) == 2 and limit[0] not in {"max", "-1"}:
            yield int(limit[0]) // int(limit[1])


def _control_groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control groups (versions 2 and 1) and of all groups above them."""
    for membership in _words(root / "proc/self/cgroup", separator="\n"):
        _, controllers, name = membership.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / (controller if controllers else "")
        group = mount / name.lstrip("/")
        yield from (group, *(above for above in group.parents if above.is_relative_to(mount)))


def _words(path: Path, separator: str | None = None) -> list[str]:
    """Return the words (or lines) of a file of the kernel, none where it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [each for each in text.split(separator) if each]
