"""Facts of the machine are stable and fast; memory of a process tree is counted once per page."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from parashot import hardware
from parashot.hardware import MemoryPeak, inspect_hardware, tree_memory_bytes

MIB = 2**20
ALLOCATE = """
import sys
held = bytearray(b"x") * (int(sys.argv[1]) << 20)
print("held", flush=True)
sys.stdin.read()
"""
INSPECT = """
import sys
from parashot.hardware import inspect_hardware
print(inspect_hardware().cuda, "torch" in sys.modules)
"""


def _holder(mebibytes: int) -> subprocess.Popen[str]:
    """Start a process that holds `mebibytes` until its stdin is closed, and wait until it does."""
    command, pipe = [sys.executable, "-c", ALLOCATE, str(mebibytes)], subprocess.PIPE
    child = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


def test_facts_are_those_of_this_machine() -> None:
    found = inspect_hardware()
    assert found == inspect_hardware()
    assert found.python == platform.python_version()
    assert found.torch
    assert found.cpu_model
    assert 1 <= found.cores <= found.threads <= (os.cpu_count() or 1)
    assert 0 < found.memory_gib <= round(psutil.virtual_memory().total / 2**30)
    assert platform.release() not in found.platform


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="this machine has an NVIDIA driver")
def test_torch_is_not_imported_without_a_driver() -> None:
    command, away = [sys.executable, "-c", INSPECT], {**os.environ, "PATH": ""}
    done = subprocess.run(command, env=away, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["None", "False"]


@pytest.mark.gpu
def test_gpus_are_named() -> None:
    found = inspect_hardware()
    if not found.gpus:
        pytest.skip("no CUDA device")
    import torch

    assert len(found.gpus) == torch.cuda.device_count()
    assert found.cuda == torch.version.cuda


def _machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "threads"),
    [
        ({}, 8),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 8),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "350000 100000\n"}, 3),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "200000 100000\n"}, 2),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/a\n",
                "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "400000\n",
                "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            4,
        ),
    ],
    ids=["none", "unlimited", "quota", "less-than-one", "group-above", "version-1"],
)
def test_threads_follow_affinity_and_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], threads: int
) -> None:
    monkeypatch.setattr(hardware, "_affinity", lambda: set(range(8)))
    assert hardware.usable_threads(_machine(tmp_path, files)) == threads


def test_cores_count_siblings_once_and_memory_is_limited_by_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "_affinity", lambda: {0, 1, 4, 5})
    siblings = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    files = {siblings.format(thread): f"{thread % 4},{thread % 4 + 4}\n" for thread in range(8)}
    files |= {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{512 * MIB}\n"}
    root = _machine(tmp_path, files)
    assert hardware.usable_cores(root) == 2
    assert hardware.usable_memory_bytes(root) == 512 * MIB


def test_memory_of_a_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(process: psutil.Process) -> None:
        raise psutil.AccessDenied

    before = tree_memory_bytes(os.getpid())
    child = _holder(64)
    try:
        assert tree_memory_bytes(os.getpid()) - before > 60 * MIB
        assert 60 * MIB < tree_memory_bytes(child.pid) < 120 * MIB
        monkeypatch.setattr(psutil.Process, "memory_full_info", refuse)  # RSS stands in for PSS
        assert tree_memory_bytes(child.pid) == psutil.Process(child.pid).memory_info().rss
    finally:
        child.communicate()
    assert tree_memory_bytes(child.pid) == 0  # it has gone


def test_peak_is_seen_after_the_child_is_gone() -> None:
    before = tree_memory_bytes(os.getpid())
    with MemoryPeak(interval_seconds=0.01) as memory:
        child = _holder(96)
        while memory.peak_bytes - before < 90 * MIB and child.poll() is None:
            threading.Event().wait(0.01)
        child.communicate()
    assert memory.peak_bytes - before > 90 * MIB
    assert tree_memory_bytes(os.getpid()) < memory.peak_bytes - 60 * MIB


def test_sampler_stops_when_the_body_fails() -> None:
    memory = MemoryPeak(interval_seconds=0.01)
    with pytest.raises(RuntimeError, match="body"), memory:
        raise RuntimeError("body")
    assert not any(thread.name == "memory-peak" for thread in threading.enumerate())
    assert memory.peak_bytes > 0
