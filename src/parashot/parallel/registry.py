"""The strategies by name: the one place where a new one is entered."""

from __future__ import annotations

from torch import nn

from parashot.parallel.context import Context, Placement
from parashot.parallel.ddp import Ddp
from parashot.parallel.dp import Dp
from parashot.parallel.serial import Serial
from parashot.parallel.strategy import MakeOptimizer, Objective, Strategy
from parashot.params import ParallelParams

STRATEGIES: dict[str, type[Strategy]] = {"serial": Serial, "dp": Dp, "ddp": Ddp}


def build_strategy(
    name: str,
    network: nn.Module,
    objective: Objective,
    make_optimizer: MakeOptimizer,
    context: Context,
    parallel: ParallelParams,
) -> Strategy:
    """Wrap `network` for training by strategy `name`."""
    parts = (network, objective, make_optimizer, context)
    if name == "serial":
        return Serial(*parts)
    if name == "dp":
        return Dp(*parts, parallel.dp)
    return Ddp(*parts, parallel.ddp)


def obstacle(name: str, placement: Placement, gpus: int, compile_mode: str = "none") -> str:
    """Why `name` cannot run with this placement, or an empty text."""
    if name == "dp" and compile_mode in {"default", "reduce-overhead"}:
        return "DataParallel's threads cannot run a compiled network; set train.compile=none to compare it"
    if placement.device_type == "cuda" and name != "serial" and placement.replicas > gpus:
        return (
            f"{placement.replicas} replicas need as many GPUs and {gpus} is here; "
            "set parallel.replicas=1, or parallel.device=cpu to compare on the CPU"
        )
    return ""
