"""A check, and those of what this machine has for training: cores, memory, GPUs."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import distributed as dist

from parashot.hardware import has_nvidia_driver, inspect_hardware
from parashot.parallel.abilities import compile_modes, precisions
from parashot.parallel.context import Placement, cpu_replicas
from parashot.questions.text import counted, listed, size
from parashot.records import Hardware

LITTLE_MEMORY_GIB = 8
LITTLE_SHARED_BYTES = 2**30


@dataclass(frozen=True)
class Check:
    """What was found, what that means for training here, and the fix of what is not ok.

    A `warning` costs speed, space or comfort; a `problem` stops a study.
    """

    topic: str
    found: str
    means: str
    verdict: Literal["ok", "warning", "problem"] = "ok"
    fix: str = ""


def machine_checks() -> list[Check]:
    """Look at this machine as torch sees it."""
    hardware = inspect_hardware()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return [
        cores(hardware, os.cpu_count() or 1),
        memory(hardware.memory_gib),
        gpus(hardware.gpus, has_nvidia_driver()),
        *abilities(device),
        exchange("nccl" if hardware.gpus else "gloo"),
        shared_memory(Path("/dev/shm")),
    ]


def cores(hardware: Hardware, of_machine: int) -> Check:
    """Check cores, which are a CPU's replicas."""
    found = f"{hardware.cpu_model}, {counted(hardware.cores, 'core')}, {counted(hardware.threads, 'thread')}"
    if hardware.threads < of_machine:
        found += f" of the machine's {of_machine}"
    most = cpu_replicas(hardware.cores)
    if most == 1 and not hardware.gpus:
        means = "one replica: no strategy can be compared with another"
        fix = "run on a machine with 2 or more cores, or lift the limit of this container"
        return Check("cores", found, means, "warning", fix)
    return Check("cores", found, f"{counted(most, 'replica')} on the CPU, a core each or more")


def replicas(placement: Placement, gpus: int) -> Check:
    """Check that every replica of the study has a core or a GPU of its own."""
    on_gpu = placement.device_type == "cuda"
    there, device = (gpus, "GPU") if on_gpu else (placement.cores, "core")
    found = f"{counted(placement.replicas, 'replica')} on {counted(there, device)}"
    if placement.replicas <= there:
        return Check("replicas", found, f"each has a {device} of its own, or more")
    means = "strategies of several replicas are left out" if on_gpu else "replicas take turns on a core"
    return Check("replicas", found, means, "warning", "parallel.replicas=auto takes as many as fit")


def memory(gib: int) -> Check:
    """Check the memory that this process may use."""
    if gib < LITTLE_MEMORY_GIB:
        means = "the default study fits; larger networks may not"
        fix = "train.recompute=true and a larger train.accumulate need less memory"
        return Check("memory", f"{gib} GiB", means, "warning", fix)
    return Check("memory", f"{gib} GiB", "enough for the default study")


def gpus(names: tuple[str, ...], driver: bool) -> Check:
    """Check for GPUs, and that torch can use them."""
    cuda = f"CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
    build = f"torch {torch.__version__}, {cuda}"
    if names:
        means = "one process per GPU"
        if len(names) == 1:
            means = "one replica; parallel.device=cpu compares strategies"
        return Check("GPUs", f"{listed(names)} ({build})", means)
    if driver:
        found = f"an NVIDIA driver, but none that torch can use ({build})"
        fix = (
            "compare the driver's CUDA version (nvidia-smi) with torch's, and install the torch that fits it"
        )
        return Check("GPUs", found, "training runs on the CPU", "warning", fix)
    return Check("GPUs", f"none ({build})", "training runs on the CPU, DataParallel as built for it")


def abilities(device: str) -> list[Check]:
    """Check for bf16 in hardware, and for what torch.compile needs."""
    able = precisions(device)
    means = "stage tune measures which is faster" if "bf16" in able else "every step is computed in fp32"
    precision = Check("precision", f"{listed(able)} on {device}", means)
    if len(compile_modes(device)) > 1:
        return [precision, Check("compiler", "torch.compile works", "trainings try whether compiling pays")]
    need = "triton with a C compiler (gcc)" if device == "cuda" else "a C++ compiler (g++)"
    return [precision, Check("compiler", f"no {need}", "networks are not compiled; nothing else needs it")]


def exchange(needed: str) -> Check:
    """Check for the backend that sends gradients."""
    backends = {"nccl": dist.is_nccl_available(), "gloo": dist.is_gloo_available()}
    there = listed(name for name, available in backends.items() if available)
    if not backends[needed]:
        fix = f"install a build of torch with {needed}, or set parallel.ddp.enabled=false"
        return Check("exchange", f"{there or 'none'} in this torch", f"DDP needs {needed}", "problem", fix)
    return Check("exchange", there, f"DDP uses {needed}")


def shared_memory(folder: Path) -> Check:
    """Check the room for the batches of loader workers."""
    if not folder.is_dir():
        return Check("shared memory", f"no {folder}", "where loader workers fail, set loader.workers=0")
    free = shutil.disk_usage(folder).free
    found = f"{size(free)} free in {folder}"
    if free < LITTLE_SHARED_BYTES:
        means = "several loader workers with large batches may die of it"
        fix = "give the container more (docker run --shm-size=2g), or use fewer loader workers"
        return Check("shared memory", found, means, "warning", fix)
    return Check("shared memory", found, "enough for loader workers")
