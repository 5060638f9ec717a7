"""Precisions and modes of torch.compile that the device supports; others are refused before work starts."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from importlib.util import find_spec

import torch

from parashot.errors import DeviceError
from parashot.parallel.strategy import StepOptions
from parashot.params import Compile, Precision

COMPILERS = {"cpu": ("g++", "clang++"), "cuda": ("gcc", "clang")}
"""Compilers that torch.compile needs: of a CPU's kernels, or of the launchers of Triton's."""


def check_options(options: StepOptions, device_type: str, compile_key: str = "train.compile") -> None:
    """Raise `DeviceError` where a device of this type (cpu | cuda) cannot compute such steps.

    compile_key: the key of params.yaml that the mode of torch.compile comes from.
    """
    asked: list[tuple[str, str, Sequence[str]]] = [
        ("train.precision", options.precision, precisions(device_type)),
        (compile_key, options.compile, compile_modes(device_type)),
    ]
    for key, value, able in asked:
        if value not in able:
            known = " | ".join(able)
            raise DeviceError(f"{key}: {value} is not possible on {device_type} here; it can be {known}")


def precisions(device_type: str) -> list[Precision]:
    """Precisions the device computes in, fp32 first."""
    if device_type == "cuda":
        able = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        able = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return ["fp32", "bf16"] if able else ["fp32"]


def compile_modes(device_type: str) -> list[Compile]:
    """Modes of torch.compile that work on the device, `none` first."""
    if not any(map(shutil.which, COMPILERS[device_type])):
        return ["none"]
    if device_type == "cuda":
        return ["none", "default", "reduce-overhead"] if find_spec("triton") else ["none"]
    return ["none", "default"]
