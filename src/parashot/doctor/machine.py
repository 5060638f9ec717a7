"""What this machine has for training: cores, memory, GPUs and what they speak through."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import torch
from torch import distributed as dist

from parashot.doctor.check import Check
from parashot.hardware import inspect_hardware
from parashot.parallel.abilities import compile_modes, precisions
from parashot.parallel.context import MOST_CPU_REPLICAS
from parashot.questions.text import counted, listed, size
from parashot.records import Hardware

GIB = 2**30
LITTLE_MEMORY_GIB = 8
LITTLE_SHARED_BYTES = GIB

_LINKS = {
    "NV": "NVLink",
    "PIX": "one PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "the CPU's PCIe bridge",
    "NODE": "PCIe within one CPU",
    "SYS": "the link between CPUs",
}
"""By the first letters of what nvidia-smi calls them, the fastest first."""


def machine_checks() -> list[Check]:
    """Look at this machine as torch sees it."""
    hardware = inspect_hardware()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return [
        cores(hardware, os.cpu_count() or 1),
        memory(hardware.memory_gib),
        gpus(hardware.gpus, torch.cuda.is_available(), torch.version.cuda, _driver()),
        *links(_topology()),
        precision(device),
        compiler(device),
        exchange(len(hardware.gpus)),
        shared_memory(Path("/dev/shm")),
    ]


def cores(hardware: Hardware, of_machine: int) -> Check:
    """Cores, which are a CPU's replicas."""
    found = f"{hardware.cpu_model}, {counted(hardware.cores, 'core')}, {counted(hardware.threads, 'thread')}"
    if hardware.threads < of_machine:
        found += f" of the machine's {of_machine}"
    most = min(hardware.cores, MOST_CPU_REPLICAS)
    if most == 1 and not hardware.gpus:
        return Check(
            "cores",
            found,
            "one replica: no strategy can be compared with another",
            "warning",
            "run on a machine with 2 or more cores, or lift the limit of this container",
        )
    return Check("cores", found, f"{counted(most, 'replica')} on the CPU, a core each or more")


def memory(gib: int) -> Check:
    """Memory that this process may use."""
    if gib < LITTLE_MEMORY_GIB:
        return Check(
            "memory",
            f"{gib} GiB",
            "the default study fits; larger networks may not",
            "warning",
            "train.recompute=true and a larger train.accumulate need less memory",
        )
    return Check("memory", f"{gib} GiB", "enough for the default study")


def gpus(names: tuple[str, ...], usable: bool, cuda: str | None, driver: bool) -> Check:
    """GPUs, and whether torch can use them."""
    build = f"torch {torch.__version__}, {'CUDA ' + cuda if cuda else 'built without CUDA'}"
    if driver and not usable:
        return Check(
            "GPUs",
            f"an NVIDIA driver, but none that torch can use ({build})",
            "training runs on the CPU",
            "warning",
            "compare the driver's CUDA version (nvidia-smi) with torch's, and install the torch that fits it",
        )
    if not names:
        return Check("GPUs", f"none ({build})", "training runs on the CPU, DataParallel as built for it")
    means = (
        "one process per GPU" if len(names) > 1 else "one replica; parallel.device=cpu compares strategies"
    )
    return Check("GPUs", f"{listed(names)} ({build})", means)


def links(topology: str) -> list[Check]:
    """How GPUs reach each other, of what `nvidia-smi topo -m` prints."""
    found = sorted({_link(word) for word in _pairs(topology)}, key=list(_LINKS.values()).index)
    if not found:
        return []
    slow = found[-1] == _LINKS["SYS"]
    means = "gradients of some pairs cross between CPUs" if slow else "gradients stay near the GPUs"
    return [Check("GPU links", listed(found), means)]


def precision(device: str) -> Check:
    """Whether bf16 is computed in hardware."""
    able = precisions(device)
    means = "stage tune measures which is faster" if "bf16" in able else "every step is computed in fp32"
    return Check("precision", f"{listed(able)} on {device}", means)


def compiler(device: str) -> Check:
    """Whether torch.compile can work."""
    if len(compile_modes(device)) > 1:
        return Check("compiler", "torch.compile works", "long trainings try whether compiling pays")
    need = "triton with a C compiler (gcc)" if device == "cuda" else "a C++ compiler (g++)"
    return Check("compiler", f"no {need}", "networks are not compiled; nothing else needs it")


def exchange(count: int) -> Check:
    """What processes send gradients through."""
    backends = {
        "nccl": dist.is_nccl_available(),
        "gloo": dist.is_gloo_available(),
        "mpi": dist.is_mpi_available(),
    }
    there = [name for name, available in backends.items() if available]
    needed = "nccl" if count else "gloo"
    if needed not in there:
        return Check(
            "exchange",
            f"{listed(there) or 'none'} in this build of torch",
            f"DDP needs {needed}",
            "problem",
            f"install a build of torch with {needed}, or set parallel.ddp.enabled=false",
        )
    return Check("exchange", listed(there), f"DDP uses {needed}")


def shared_memory(folder: Path) -> Check:
    """Room for the batches of loader workers."""
    if not folder.is_dir():
        return Check(
            "shared memory", f"no {folder}", "loader workers may not work; loader.workers=0 needs none"
        )
    free = shutil.disk_usage(folder).free
    if free < LITTLE_SHARED_BYTES:
        return Check(
            "shared memory",
            f"{size(free)} free in {folder}",
            "several loader workers with large batches may die of it",
            "warning",
            "give the container more (docker run --shm-size=2g), or use fewer loader workers",
        )
    return Check("shared memory", f"{size(free)} free in {folder}", "enough for loader workers")


def _driver() -> bool:
    return Path("/proc/driver/nvidia").exists() or shutil.which("nvidia-smi") is not None


def _topology() -> str:
    if shutil.which("nvidia-smi") is None:
        return ""
    command = ["nvidia-smi", "topo", "-m"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _pairs(topology: str) -> list[str]:
    """What stands between two GPUs, each pair once."""
    rows = [line.split() for line in topology.splitlines() if line.startswith("GPU")]
    count = len(rows)
    return [rows[one][1 + other] for one in range(count) for other in range(one + 1, count)]


def _link(word: str) -> str:
    return next((name for key, name in _LINKS.items() if word.startswith(key)), _LINKS["SYS"])
