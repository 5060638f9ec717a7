"""Trace of one training step: the processes and threads that run it, and what they send each other."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any
from unittest import mock

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.parallel import comm
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from parashot.parallel.context import Context
from parashot.parallel.dp import Dp
from parashot.parallel.exchange import from_all_ranks
from parashot.parallel.strategy import Strategy
from parashot.questions.strategies.records import StepTrace
from parashot.questions.timed import TimedStrategy


@dataclass
class RankTrace:
    """Threads, collectives and bytes of one step on one rank."""

    threads: set[tuple[int, int]] = field(default_factory=set)
    calls: dict[str, int] = field(default_factory=dict)
    bytes_sent: float = 0.0


def trace_step(timed: TimedStrategy) -> RankTrace:
    """Do one instrumented step: record the threads of forward passes and the collectives."""
    trace = RankTrace()

    def note(module: nn.Module, inputs: object, output: object) -> None:
        if next(module.parameters(), None) is not None:
            trace.threads.add((os.getpid(), threading.get_ident()))

    torch.set_num_threads(timed.threads)
    hook = register_module_forward_hook(note)
    try:
        with ExitStack() as counting:
            sent = counting.enter_context(BytesSent(timed.strategy.context.world_size))
            counting.enter_context(CollectiveCount(trace.calls))
            moves = {
                kind: counting.enter_context(mock.patch.object(target, name, wraps=getattr(target, name)))
                for target, name, kind in _moves(timed.strategy)
            }
            timed.strategy.step(timed.batches[0])
    finally:
        hook.remove()
    trace.calls |= {kind: each.call_count for kind, each in moves.items()}
    trace.bytes_sent = sent.bytes + _bytes_between_replicas(timed)
    return trace


def _bytes_between_replicas(timed: TimedStrategy) -> float:
    """Bytes DataParallel moves in a step: state and inputs out to its other replicas, gradients back."""
    strategy, batch = timed.strategy, timed.batches[0]
    if not isinstance(strategy, Dp):
        return 0.0
    others = min(strategy.replicas, len(batch)) - 1
    state = sum(each.nbytes for each in strategy.network.state_dict().values())
    gradients = sum(each.nbytes for each in strategy.network.parameters())
    inputs = sum(each.nbytes for each in batch.tensors) / (others + 1)
    return float(others * (state + gradients + inputs))


def _moves(strategy: Strategy) -> list[tuple[object, str, str]]:
    """Methods by which DataParallel moves data: object, name, kind. On GPUs torch reduces within autograd."""
    if not isinstance(strategy, Dp):
        return []
    transport = strategy.transport
    on_cpu = hasattr(transport, "reduce")
    reduce = (transport, "reduce", "reduce") if on_cpu else (comm, "reduce_add_coalesced", "reduce")
    return [*((transport, kind, kind) for kind in ("scatter", "replicate", "gather")), reduce]


class CollectiveCount(TorchDispatchMode):
    """Counts every collective of torch.distributed, those that DDP calls from C++ included."""

    def __init__(self, calls: dict[str, int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's modes carry no annotations
        self.calls = calls

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            name = func.overloadpacket.__name__
            self.calls[name] = self.calls.get(name, 0) + 1
        return func(*args, **(kwargs or {}))


class BytesSent(TorchDispatchMode):
    """Adds up the bytes that one of `world_size` ranks sends, if every collective sends the least it can.

    Each sends as much of n bytes: all-reduce 2 (p - 1) / p n, reduce-scatter (p - 1) / p n, all-gather p - 1
    times its own part (Thakur et al., IJHPCA 2005); broadcast, the mean over ranks, (p - 1) / p n.
    """

    def __init__(self, world_size: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's modes carry no annotations
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
            place, factor = self._factors.get(func.overloadpacket.__name__, (0, 0))
            tensors = (each for each in tree_leaves(args[place]) if isinstance(each, torch.Tensor))
            self.bytes += factor * sum(each.nbytes for each in tensors)
        return func(*args, **(kwargs or {}))


def merge_traces(
    variant: str,
    mine: RankTrace,
    timed: TimedStrategy | None,
    context: Context,
    control: dist.ProcessGroup | None,
) -> StepTrace:
    """Combine the traces of all ranks; calls are the main rank's."""
    everyone = from_all_ranks(mine, context, control)
    threads = set().union(*(each.threads for each in everyone))
    calls = everyone[0].calls
    whole = timed.strategy.whole_network() if timed else None
    return StepTrace(
        variant=variant,
        processes=len({process for process, _ in threads}),
        threads=len(threads),
        all_reduces=calls.get("allreduce_", 0),
        broadcasts=calls.get("broadcast_", 0) + calls.get("replicate", 0),
        scatters=calls.get("scatter", 0),
        gathers=calls.get("gather", 0),
        reduces=calls.get("reduce", 0),
        all_gathers=calls.get("allgather_", 0) + calls.get("_allgather_base_", 0),
        reduce_scatters=calls.get("_reduce_scatter_base_", 0) + calls.get("reduce_scatter_", 0),
        sends=calls.get("send", 0),
        bytes_sent=round(fmean(each.bytes_sent for each in everyone if each.threads)),
        gradient_bytes=sum(each.nbytes for each in whole.parameters()) if whole else 0,
    )
