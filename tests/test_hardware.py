"""Facts of the machine are stable and fast; memory of a process tree is counted once per page."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import threading
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from parashot import hardware
from parashot.hardware import MemoryPeak, inspect_hardware, tree_memory_bytes

MIB = 2**20
HOLD = """
import sys
held = bytearray(b"x") * (96 << 20)
print("held", flush=True)
sys.stdin.read()
"""


def test_facts_are_those_of_this_machine() -> None:
    found = inspect_hardware()
    assert found == inspect_hardware()
    assert found.python == platform.python_version()
    assert found.torch and found.cpu_model
    assert 1 <= found.cores <= found.threads <= (os.cpu_count() or 1)
    assert 0 < found.memory_gib <= round(psutil.virtual_memory().total / 2**30)
    assert platform.release() not in found.platform


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="this machine has an NVIDIA driver")
def test_torch_is_not_imported_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it fails
    assert inspect_hardware().cuda is None


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
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "350000 100000\n"}, 3),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/cpu.max": "200000 100000\n",
                "sys/fs/cgroup/cpu.max": "max 100000\n",
            },
            2,
        ),
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
    ids=["none", "quota", "less-than-one", "group-above", "version-1"],
)
def test_threads_follow_affinity_and_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], threads: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert hardware.usable_threads(_machine(tmp_path, files)) == threads


def test_cores_count_siblings_once_and_memory_is_limited_by_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 4, 5})
    siblings = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    files = {siblings.format(thread): f"{thread % 4},{thread % 4 + 4}\n" for thread in range(8)}
    files |= {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{512 * MIB}\n"}
    root = _machine(tmp_path, files)
    assert hardware.usable_cores(root) == 2
    assert hardware.usable_memory_bytes(root) == 512 * MIB


def test_memory_of_a_tree_and_its_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    before, command, pipe = tree_memory_bytes(os.getpid()), [sys.executable, "-c", HOLD], subprocess.PIPE
    with MemoryPeak(interval_seconds=0.01) as memory:
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as child:
            assert child.stdout and child.stdout.readline() == "held\n"
            assert tree_memory_bytes(os.getpid()) - before > 90 * MIB
            assert 90 * MIB < tree_memory_bytes(child.pid) < 160 * MIB
            while memory.peak_bytes - before < 90 * MIB:
                threading.Event().wait(0.01)
            with monkeypatch.context() as patch:
                denied = Mock(side_effect=psutil.AccessDenied)
                patch.setattr(psutil.Process, "memory_full_info", denied)  # RSS stands in for PSS
                assert tree_memory_bytes(child.pid) == psutil.Process(child.pid).memory_info().rss
        assert tree_memory_bytes(child.pid) == 0  # it has gone
    assert memory.peak_bytes - before > 90 * MIB
    assert tree_memory_bytes(os.getpid()) < memory.peak_bytes - 60 * MIB
