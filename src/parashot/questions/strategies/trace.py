"""Trace of one training step: the processes and threads that run it, and what they send each other."""

from __future__ import annotations

import os
import threading
from statistics import fmean
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from parashot.parallel.context import Context
from parashot.parallel.dp import Dp
from parashot.parallel.exchange import from_all_ranks
from parashot.questions.strategies.records import StepTrace
from parashot.questions.timed import TimedStrategy


def trace_step(variant: str, timed: TimedStrategy | None, context: Context) -> StepTrace:
    """Trace a step of all ranks; all-reduces are the main rank's. timed: None where a rank takes no part."""
    found = from_all_ranks(_traced(timed) if timed else None, context, patient=True)
    by_rank, all_reduces, sent = zip(*filter(None, found), strict=True)
    threads = set().union(*by_rank)
    whole = timed.strategy.whole_network() if timed else None
    return StepTrace(
        variant=variant,
        processes=len({process for process, _ in threads}),
        threads=len(threads),
        all_reduces=all_reduces[0],
        bytes_sent=round(fmean(sent)),
        gradient_bytes=sum(each.nbytes for each in whole.parameters()) if whole else 0,
    )


def _traced(timed: TimedStrategy) -> tuple[set[tuple[int, int]], int, float]:
    """Do one instrumented step: threads of forward passes, all-reduces and bytes sent of this rank."""
    threads: set[tuple[int, int]] = set()

    def note(module: nn.Module, inputs: object, output: object) -> None:
        # replicas of torch.nn.DataParallel hold no parameters, and the module itself computes nothing
        computes = next(module.parameters(), None) is not None or getattr(module, "_is_replica", False)
        if computes and not isinstance(module, nn.DataParallel):
            threads.add((os.getpid(), threading.get_ident()))

    torch.set_num_threads(timed.threads)
    hook = register_module_forward_hook(note)
    try:
        with Collectives(timed.strategy.context.world_size) as sent:
            timed.strategy.step(timed.batch)
    finally:
        hook.remove()
    return threads, sent.calls.get("allreduce_", 0), sent.bytes + _bytes_between_replicas(timed)


def _bytes_between_replicas(timed: TimedStrategy) -> float:
    """Bytes DataParallel moves in a step: state and inputs out to its other replicas, gradients back."""
    strategy, batch = timed.strategy, timed.batch
    if not isinstance(strategy, Dp):
        return 0.0
    others = min(strategy.replicas, len(batch)) - 1
    state = sum(each.nbytes for each in strategy.network.state_dict().values())
    gradients = sum(each.nbytes for each in strategy.network.parameters())
    inputs = sum(each.nbytes for each in batch.tensors) / (others + 1)
    return float(others * (state + gradients + inputs))


class Collectives(TorchDispatchMode):
    """Counts the collectives of torch.distributed, those that DDP calls from C++ included, and their bytes.

    bytes: what one of `world_size` ranks sends, if every collective sends the least it can. Each sends as
    much of n bytes: all-reduce 2 (p - 1) / p n, reduce-scatter (p - 1) / p n, all-gather p - 1 times its own
    part (Thakur et al., IJHPCA 2005); broadcast, the mean over ranks, (p - 1) / p n.
    """

    def __init__(self, world_size: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's modes carry no annotations
        self.calls: dict[str, int] = {}
        self.bytes = 0.0
        others = world_size - 1
        self._factors = {  # of which argument, and how many times
            "allreduce_": (0, 2 * others / world_size),
            "broadcast_": (0, others / world_size),
            "allgather_": (1, others),
            "_allgather_base_": (1, others),
            "allgather_into_tensor_coalesced_": (1, others),
            "_reduce_scatter_base_": (0, others),
            "reduce_scatter_": (0, others),
            "send": (0, 1),
        }

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            name = func.overloadpacket.__name__
            self.calls[name] = self.calls.get(name, 0) + 1
            place, factor = self._factors.get(name, (0, 0))
            tensors = (each for each in tree_leaves(args[place]) if isinstance(each, torch.Tensor))
            self.bytes += factor * sum(each.nbytes for each in tensors)
        return func(*args, **(kwargs or {}))
