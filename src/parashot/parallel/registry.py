"""The strategies by name: the one place where a new one is entered."""

from __future__ import annotations

import torch

from parashot.parallel.allreduce import Allreduce
from parashot.parallel.channel_split import ChannelSplit
from parashot.parallel.context import Context, Placement
from parashot.parallel.ddp import Ddp
from parashot.parallel.dp import Dp
from parashot.parallel.fsdp import Fsdp
from parashot.parallel.layer_split import LayerSplit
from parashot.parallel.serial import Serial
from parashot.parallel.server import joined_by_torchrun
from parashot.parallel.strategy import StepOptions, Strategy
from parashot.params import ParallelParams, Params, TrainParams
from parashot.task import Task

_ALL: tuple[type[Strategy], ...] = (Serial, Dp, Ddp, Allreduce, Fsdp, LayerSplit, ChannelSplit)

STRATEGIES: dict[str, type[Strategy]] = {each.name: each for each in _ALL}


def build_strategy(
    name: str, task: Task, options: StepOptions, context: Context, parallel: ParallelParams
) -> Strategy:
    """Train `task` by strategy `name`, with its own section of params."""
    return STRATEGIES[name](task, options, context, parallel.section(name))


def step_options(train: TrainParams) -> StepOptions:
    """How params say a step is computed; what is still `auto` is fp32 and not compiled."""
    return StepOptions(
        precision="bf16" if train.precision == "bf16" else "fp32",
        accumulate=train.accumulate,
        skip_nonfinite=train.on_nonfinite == "skip",
        compile=train.compile if train.compile in {"default", "reduce-overhead"} else "none",
    )


def pretraining_options(params: Params) -> StepOptions:
    """How params say a step of pretraining is computed, in the precision of the training after it."""
    return StepOptions(
        precision=step_options(params.train).precision,
        compile=params.pretrain.compile,
        dynamic=False,  # images have two sizes at most (pretrain.small_size)
    )


def unsupported_reason(
    name: str, task: Task, options: StepOptions, placement: Placement, parallel: ParallelParams
) -> str:
    """Reason why `name` cannot train `task` with this placement, or an empty text."""
    strategy = STRATEGIES[name]
    if options.compile != "none" and not strategy.compiles:
        return f"{name} cannot run a compiled network; set train.compile=none to compare it"
    # those that torchrun has started may be on several machines, and have been counted
    takes_gpus = placement.device_type == "cuda" and name != "serial" and not joined_by_torchrun()
    if takes_gpus and placement.replicas > (gpus := torch.cuda.device_count()):
        return (
            f"{placement.replicas} replicas need as many GPUs and {gpus} is here; "
            "set parallel.replicas=1, or parallel.device=cpu to compare on the CPU"
        )
    return strategy.unsupported_reason(placement, task, parallel.section(name))
