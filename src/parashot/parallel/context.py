"""Who this process is among the others, and which devices and threads it has.

With `torchrun` the only reader of RANK and its kin.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed as dist
from torch._C._distributed_c10d import HashStore

from parashot.errors import DeviceError, PeerError, one_line
from parashot.hardware import usable_cores
from parashot.parallel.allocator import keep_freed_memory
from parashot.parallel.meeting import loopback
from parashot.parallel.torchrun import joined_by_torchrun
from parashot.params import ParallelParams

PATIENCE = timedelta(days=7)
"""The same for a rank that has no part in what the others measure."""

MOST_CPU_REPLICAS = 4


@dataclass(frozen=True)
class Meeting:
    """How ranks find each other and speak, and how long they wait for each other."""

    backend: str = "auto"  # auto | gloo | nccl | mpi
    init_method: str = "env://"
    timeout_seconds: float = 600.0
    interface: str | None = None
    max_restarts: int = 0


@dataclass(frozen=True)
class Placement:
    """Replicas over this machine's devices.

    On a CPU every replica has the same number of threads (rule 4).
    """

    device_type: str  # cpu | cuda
    replicas: int
    threads_per_replica: int
    cores: int
    meeting: Meeting = Meeting()

    @property
    def backend(self) -> str:
        """What the ranks speak through: by default what is made for the device."""
        if self.meeting.backend != "auto":
            return self.meeting.backend
        return "nccl" if self.device_type == "cuda" else "gloo"


@dataclass(frozen=True)
class Context:
    """One process of a run; with a single process there is no process group."""

    rank: int
    ranks: int
    local_rank: int
    local_ranks: int
    placement: Placement
    group: dist.ProcessGroup | None = None
    """The ranks that work together; None: all there are."""

    @property
    def device(self) -> torch.device:
        """The device this process trains on."""
        if self.placement.device_type == "cuda":
            return torch.device("cuda", self.local_rank)
        return torch.device("cpu")

    @property
    def is_first(self) -> bool:
        """Whether this rank reports and writes for all."""
        return self.rank == 0


def place(parallel: ParallelParams) -> Placement:
    """Resolve `auto` on this machine; where torchrun has started ranks, they are the replicas.

    Raises `DeviceError` where the device asked for is not there.
    """
    gpus = torch.cuda.device_count() if parallel.device != "cpu" else 0
    if parallel.device == "cuda" and gpus == 0:
        raise DeviceError("parallel.device: cuda, but torch finds no CUDA device here; set it to cpu or auto")
    cores, device_type = usable_cores(), "cuda" if gpus else "cpu"
    meeting = Meeting(
        parallel.backend,
        os.environ.get("PARASHOT_INIT_METHOD", "env://"),
        float(os.environ.get("PARASHOT_TIMEOUT_SECONDS", "600")),
        os.environ.get("PARASHOT_INTERFACE"),
    )
    _check_backend(meeting.backend, device_type)
    if joined_by_torchrun():
        here = int(os.environ["LOCAL_WORLD_SIZE"])
        if gpus and here > gpus:
            raise DeviceError(
                f"torchrun started {here} ranks on this host, which has {gpus} GPUs; start one per GPU"
            )
        return Placement(device_type, int(os.environ["WORLD_SIZE"]), max(1, cores // here), cores, meeting)
    fitting = gpus or min(cores, MOST_CPU_REPLICAS)
    replicas = fitting if parallel.replicas == "auto" else parallel.replicas
    return Placement(device_type, replicas, max(1, cores // replicas), cores, meeting)


def _check_backend(backend: str, device_type: str) -> None:
    """Raise `DeviceError` where the backend asked for cannot work here."""
    there = {
        "gloo": dist.is_gloo_available(),
        "nccl": dist.is_nccl_available(),
        "mpi": dist.is_mpi_available(),
    }
    if not there.get(backend, True):
        raise DeviceError(f"parallel.backend: {backend}, but this torch was built without it; set it to auto")
    if backend == "nccl" and device_type == "cpu":
        raise DeviceError("parallel.backend: nccl works on GPUs, and training is on the CPU; set it to auto")


def fit_to_batch(placement: Placement, batchsz: int) -> Placement:
    """A step of fewer episodes than replicas runs on as many replicas as it has episodes.

    Ranks that torchrun has started are there already: those without a share take part with weight 0.
    """
    if joined_by_torchrun():
        return placement
    return dataclasses.replace(placement, replicas=min(placement.replicas, batchsz))


def starting_again(placement: Placement, times: int) -> Placement:
    """The same for work that goes on where it was saved: lost ranks start again, so many `times`."""
    return dataclasses.replace(placement, meeting=dataclasses.replace(placement.meeting, max_restarts=times))


def by_file(placement: Placement, path: Path) -> Placement:
    """The same for ranks of one host: unless the user has named another way, they find each other by a file.

    A store that listens would listen to every network.
    """
    if placement.meeting.init_method != "env://":
        return placement
    meeting = dataclasses.replace(placement.meeting, init_method=path.as_uri())
    return dataclasses.replace(placement, meeting=meeting)


def alone(context: Context) -> Context:
    """The same process without its peers, for a strategy that needs one process."""
    return Context(0, 1, context.local_rank, 1, context.placement)


def first_ranks(context: Context, count: int) -> Context | None:
    """The first `count` ranks as a group of their own, or None in the others. Every rank must call it."""
    if count == context.ranks:
        return context
    group = dist.new_group(list(range(count)))
    if not isinstance(group, dist.ProcessGroup):  # torch's mark for a rank outside of it
        return None
    placement = dataclasses.replace(context.placement, replicas=count)
    return Context(context.rank, count, context.local_rank, min(count, context.local_ranks), placement, group)


def control_group(context: Context) -> dist.ProcessGroup | None:
    """All ranks over gloo, for long waits on GPUs too: who waits there sleeps. None for a lone rank."""
    if context.ranks == 1:
        return None
    group = dist.new_group(backend="gloo", timeout=PATIENCE)
    assert isinstance(group, dist.ProcessGroup)
    return group


def wait_for_all(control: dist.ProcessGroup | None) -> None:
    """Wait until every rank of a control group is here."""
    if control is not None:
        dist.barrier(group=control)


def ensure_group(context: Context) -> None:
    """Give a lone process the process group of one that DistributedDataParallel asks for."""
    if not dist.is_initialized():
        dist.init_process_group(context.placement.backend, store=HashStore(), rank=0, world_size=1)


def choose_interface(context: Context) -> None:
    """Let this process speak to the others on the interface that is named, or on none but this host's own."""
    one_host = context.local_ranks == context.ranks
    interface = context.placement.meeting.interface or (loopback() if one_host else None)
    if interface is not None:
        for library in ("GLOO", "NCCL"):  # what this host says for itself comes first
            os.environ.setdefault(f"{library}_SOCKET_IFNAME", interface)


@contextmanager
def process_context(placement: Placement) -> Iterator[Context]:
    """Yield this process's `Context`.

    Where a launcher started several ranks, they are in one process group meanwhile.
    """
    keep_freed_memory()
    torch.set_num_threads(placement.threads_per_replica)
    if not joined_by_torchrun():
        try:
            yield Context(0, 1, 0, 1, placement)
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()
        return
    context = Context(
        rank=int(os.environ["RANK"]),
        ranks=int(os.environ["WORLD_SIZE"]),
        local_rank=int(os.environ["LOCAL_RANK"]),
        local_ranks=int(os.environ["LOCAL_WORLD_SIZE"]),
        placement=placement,
    )
    if placement.device_type == "cuda":
        torch.cuda.set_device(context.device)
    _meet(context)
    try:
        yield context
    finally:
        dist.destroy_process_group()


FRESH_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""Set to 1 where torchrun is called: the meeting point of every attempt is a new one. Else torchrun serves
one for all of them, in which ranks that start again find the addresses of those that are gone."""


def _meet(context: Context) -> None:
    """Join the other ranks. Raises `DeviceError` where they are not found, `PeerError` where one was lost."""
    meeting = context.placement.meeting
    again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    if again and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and meeting.init_method == "env://":
        raise DeviceError(f"to start ranks again torchrun needs {FRESH_STORE}=1 in its environment; set it")
    choose_interface(context)
    method = meeting.init_method
    if method.startswith("file:"):  # a file serves one meeting: what it holds would mislead the next
        method += "." + os.environ.get("TORCHELASTIC_RUN_ID", os.environ["MASTER_PORT"])
        method += "." + os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    begin = time.monotonic()
    try:
        dist.init_process_group(
            context.placement.backend,
            init_method=method,
            timeout=timedelta(seconds=meeting.timeout_seconds),
            rank=context.rank,
            world_size=context.ranks,
        )
    except (dist.DistError, RuntimeError, ValueError, OSError) as error:
        waited = time.monotonic() - begin >= meeting.timeout_seconds
        kind = DeviceError if waited or "EADDRINUSE" in str(error) else PeerError
        raise kind(
            f"rank {context.rank} of {context.ranks} did not find the others by {method} within "
            f"{meeting.timeout_seconds:g} s ({one_line(error)}); see parallel.init_method, parallel.backend"
        ) from error
