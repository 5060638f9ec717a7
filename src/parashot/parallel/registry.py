"""The strategies by name: the one place where a new one is entered."""

from __future__ import annotations

from parashot.model.network import RelationNetwork
from parashot.parallel.allreduce import Allreduce
from parashot.parallel.channel_split import ChannelSplit
from parashot.parallel.context import Context, Placement
from parashot.parallel.ddp import Ddp
from parashot.parallel.dp import Dp
from parashot.parallel.fsdp import Fsdp
from parashot.parallel.layer_split import LayerSplit
from parashot.parallel.serial import Serial
from parashot.parallel.split import EveryEpisode
from parashot.parallel.strategy import MakeOptimizer, Objective, Strategy
from parashot.params import ParallelParams, Params

_ALL: tuple[type[Strategy], ...] = (Serial, Dp, Ddp, Allreduce, Fsdp, LayerSplit, ChannelSplit)

STRATEGIES: dict[str, type[Strategy]] = {each.name: each for each in _ALL}


def build_strategy(
    name: str,
    network: RelationNetwork,
    objective: Objective,
    make_optimizer: MakeOptimizer,
    context: Context,
    parallel: ParallelParams,
) -> Strategy:
    """Wrap `network` for training by strategy `name`, with its own section of params."""
    return STRATEGIES[name](network, objective, make_optimizer, context, getattr(parallel, name))


def splits_batch(name: str) -> bool:
    """Whether replicas share out the episodes of a step, so that none has work where there are too few."""
    return not issubclass(STRATEGIES[name], EveryEpisode)


def obstacle(name: str, params: Params, placement: Placement, gpus: int) -> str:
    """Why `name` cannot run as params say with this placement, or an empty text."""
    strategy = STRATEGIES[name]
    if params.train.compile in {"default", "reduce-overhead"} and not strategy.compiles:
        return f"{name} cannot run a compiled network; set train.compile=none to compare it"
    if params.model.head == "residual" and name == ChannelSplit.name:
        return f"{name} knows no cosine beside the relation head; set model.head=relation to compare it"
    if placement.device_type == "cuda" and name != "serial" and placement.replicas > gpus:
        return (
            f"{placement.replicas} replicas need as many GPUs and {gpus} is here; "
            "set parallel.replicas=1, or parallel.device=cpu to compare on the CPU"
        )
    return strategy.unsupported(placement, getattr(params.parallel, name))
