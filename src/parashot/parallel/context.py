"""This process among the others: its rank, its device, its threads, and how it finds them.

With `torchrun` the only reader of RANK and its kin.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist

from parashot.allocator import keep_freed_memory
from parashot.errors import DeviceError, PeerError, one_line
from parashot.hardware import usable_cores
from parashot.parallel.server import IMPORTED_BY_OPTIMIZERS, joined_by_torchrun
from parashot.params import ParallelParams

CONTROL_TIMEOUT = timedelta(days=7)

ALIKE = timedelta(seconds=30)
"""Time within which all ranks fail where they fail alike."""

MOST_CPU_REPLICAS = 4

PREFIX = "PARASHOT_"
"""Of the environment's variables that say how ranks find each other."""

HIGHEST = 1e6
"""Of seconds, eleven days, and of restarts."""


@dataclass(frozen=True)
class Rendezvous:
    """How ranks find each other and communicate, and how long they wait for each other.

    On one host nothing of theirs listens where another machine could connect.
    backend: gloo | nccl. init_method: env:// (torchrun), tcp://HOST:PORT or file:///PATH. interface: to the
    other machines; None: the loopback on one machine, else the system's choice. max_restarts: of lost ranks.
    """

    backend: str = "gloo"
    init_method: str = "env://"
    timeout_seconds: float = 600.0
    interface: str | None = None
    max_restarts: int = 0

    @classmethod
    def from_environment(cls, backend: str) -> Rendezvous:
        """Read PARASHOT_INIT_METHOD, …_TIMEOUT_SECONDS and …_INTERFACE. Raises `DeviceError`."""
        method = os.environ.get(f"{PREFIX}INIT_METHOD", cls.init_method)
        if not re.fullmatch(r"env://|tcp://[^/\s]+:\d{1,5}|file:///\S+", method):
            raise DeviceError(
                f"{PREFIX}INIT_METHOD: {method!r} is no address; set env://, tcp://HOST:PORT or file:///PATH"
            )
        timeout = _number("TIMEOUT_SECONDS", cls.timeout_seconds, low=1)
        return cls(backend, method, timeout, os.environ.get(f"{PREFIX}INTERFACE"))

    @property
    def timeout(self) -> timedelta:
        """How long a message between ranks may take."""
        return timedelta(seconds=self.timeout_seconds)

    @staticmethod
    def restarts_from_environment() -> int:
        """Read PARASHOT_MAX_RESTARTS: how often a training starts lost processes again, by default 3."""
        return int(_number("MAX_RESTARTS", 3, low=0))


def _number(name: str, default: float, low: float) -> float:
    text = os.environ.get(f"{PREFIX}{name}", str(default))
    try:
        number = float(text)
    except ValueError:
        number = low - 1
    if not low <= number <= HIGHEST:
        raise DeviceError(
            f"{PREFIX}{name}: {text!r} is not allowed; set a number from {low:g} to {HIGHEST:g}"
        )
    return number


@dataclass(frozen=True)
class Placement:
    """Replicas over this machine's devices.

    On a CPU every replica has the same number of threads (docs/methodology.md, Equal resources). keep_memory:
    whether processes keep the memory that they free for their next step (allocator.py). variables: of the
    environment that ranks are started with, besides this process's.
    """

    device_type: str  # cpu | cuda
    replicas: int
    threads_per_replica: int
    cores: int
    rendezvous: Rendezvous = field(default_factory=Rendezvous)
    keep_memory: bool = True
    variables: tuple[tuple[str, str], ...] = ()

    def on_all_cores(self) -> Placement:
        """One replica with all cores, or one GPU."""
        return replace(self, replicas=1, threads_per_replica=self.cores)

    def for_batch(self, batchsz: int) -> Placement:
        """At most as many replicas as a step has items.

        Ranks that torchrun has started are there already: those without a share take part with weight 0.
        """
        if joined_by_torchrun():
            return self
        return replace(self, replicas=min(self.replicas, batchsz))

    def with_rendezvous(self, **changes: Any) -> Placement:
        """The same with some settings of the rendezvous changed."""
        return replace(self, rendezvous=replace(self.rendezvous, **changes))


@dataclass(frozen=True)
class Context:
    """One process of a run; with a single process there is no process group.

    group: the ranks that work together; None: all there are. control: all ranks over gloo, where a rank that
    takes no part in what others measure sleeps, for days if need be; None if alone and in a group of some.
    """

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    placement: Placement
    group: dist.ProcessGroup | None = None
    control: dist.ProcessGroup | None = None

    @property
    def device(self) -> torch.device:
        """Device this process trains on."""
        on_gpu = self.placement.device_type == "cuda"
        return torch.device("cuda", self.local_rank) if on_gpu else torch.device("cpu")

    @property
    def is_main(self) -> bool:
        """Whether this rank reports and writes for all."""
        return self.rank == 0

    def alone(self) -> Context:
        """The same process without its peers, for a strategy that needs one process."""
        return Context(0, 1, self.local_rank, 1, self.placement)

    def wait_for_all(self) -> None:
        """Wait in the control group until every rank is here, asleep meanwhile."""
        if self.control is not None:
            dist.barrier(group=self.control)

    def end_unless_all_fail(self, reason: str) -> None:
        """Meet all ranks after a step, where this one may have failed for a `reason`. Every rank calls it.

        Peers that have not failed would wait for this rank in the step, as long as any message may take.
        Raises `DeviceError` where they do not come within `ALIKE`: then the launcher ends them.
        """
        if self.control is None:
            return
        try:
            dist.barrier(self.control, async_op=True).wait(ALIKE if reason else CONTROL_TIMEOUT)
        except RuntimeError:
            if reason:
                raise DeviceError(reason) from None
            raise

    def first_ranks(self, count: int) -> Context | None:
        """The first `count` ranks as a group of their own, None in the others. Every rank must call it."""
        if count == self.world_size:
            return self
        group = dist.new_group(list(range(count)), timeout=self.placement.rendezvous.timeout)
        if not isinstance(group, dist.ProcessGroup):  # torch's mark for a rank outside of it
            return None
        local_world_size = min(count, self.local_world_size)
        return Context(self.rank, count, self.local_rank, local_world_size, self.placement, group)


def resolve_placement(parallel: ParallelParams) -> Placement:
    """Resolve `auto` on this machine; where torchrun has started ranks, they are the replicas.

    Raises `DeviceError` where the device or the backend asked for is not there.
    """
    gpus = torch.cuda.device_count() if parallel.device != "cpu" else 0
    if parallel.device == "cuda" and gpus == 0:
        raise DeviceError("parallel.device: cuda, but torch finds no CUDA device here; set it to cpu or auto")
    cores, device_type = usable_cores(), "cuda" if gpus else "cpu"
    if parallel.backend == "nccl" and device_type == "cpu":
        raise DeviceError("parallel.backend: nccl works on GPUs, and training is on the CPU; set it to auto")
    if joined_by_torchrun():
        here = int(os.environ["LOCAL_WORLD_SIZE"])
        if gpus and here > gpus:
            raise DeviceError(
                f"torchrun started {here} ranks on this host, which has {gpus} GPUs; start one per GPU"
            )
        replicas = int(os.environ["WORLD_SIZE"])
    else:
        fitting = gpus or cpu_replicas(cores)
        here = replicas = fitting if parallel.replicas == "auto" else parallel.replicas
    backend = ("nccl" if gpus else "gloo") if parallel.backend == "auto" else parallel.backend
    rendezvous = Rendezvous.from_environment(backend)
    return Placement(device_type, replicas, max(1, cores // here), cores, rendezvous)


def cpu_replicas(cores: int) -> int:
    """Replicas that `cores` are shared out to where no number is set, so that few cores are left over."""
    counts = range(1, min(cores, MOST_CPU_REPLICAS) + 1)
    return max(counts[1:] or counts, key=lambda count: (count * (cores // count), count))


def choose_interface(context: Context) -> None:
    """Let this process speak to the others on the interface that is named, or on this host's loopback."""
    one_host = context.local_world_size == context.world_size
    if interface := context.placement.rendezvous.interface or ("lo" if one_host else None):
        for library in ("GLOO", "NCCL"):  # what this host says for itself comes first
            os.environ.setdefault(f"{library}_SOCKET_IFNAME", interface)


def by_file(placement: Placement, path: Path) -> Placement:
    """Let ranks of one host find each other by a file (a store would listen to every network).

    Not where the user has named another way.
    """
    by_default = placement.rendezvous.init_method == Rendezvous.init_method
    return placement.with_rendezvous(init_method=path.as_uri()) if by_default else placement


@contextmanager
def process_context(placement: Placement) -> Iterator[Context]:
    """Yield this process's `Context`; ranks of a launcher are in one process group meanwhile.

    After an error the group is left as it is: the process ends, and peers must not fail before the error is
    recorded.
    """
    if placement.keep_memory:
        keep_freed_memory()
    import_module(IMPORTED_BY_OPTIMIZERS)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler would tell of every start and stop
    torch.set_num_threads(placement.threads_per_replica)
    if not joined_by_torchrun() or os.environ["WORLD_SIZE"] == "1":
        try:
            yield Context(0, 1, 0, 1, placement)
        finally:
            if dist.is_initialized():
                _leave()
        return
    context = Context(
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        local_rank=int(os.environ["LOCAL_RANK"]),
        local_world_size=int(os.environ["LOCAL_WORLD_SIZE"]),
        placement=placement,
    )
    if placement.device_type == "cuda":
        torch.cuda.set_device(context.device)
    yield replace(context, control=_join(context))
    _leave()


def _leave() -> None:
    """Destroy the process group.

    Before 2.8 torch waits there for gloo's threads, and keeps the lock of Python that a thread needs to
    release its last tensor: neither would ever end. See https://github.com/pytorch/pytorch/pull/154976.
    """
    if torch.__version__ < "2.8":
        time.sleep(0.2)  # in which the threads release it
    dist.destroy_process_group()


FRESH_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""Set to 1 where torchrun is called: every attempt has a store of its own. Else torchrun serves one for all,
in which ranks that start again find the addresses of those that are gone."""


_SET_UP = re.compile(r"unhandled (system|cuda) error|invalid (usage|argument)|internal error", re.IGNORECASE)
"""NCCL's words where it cannot work at all, and starting again would not help."""

_OF_A_PEER = re.compile(r"remote|closed|reset|refused|timed? ?out", re.IGNORECASE)
"""Words beside those where it is a peer that has gone."""


def refuse_set_up(error: Exception) -> None:
    """Raise `DeviceError` where `error` is one of NCCL's set-up and not the loss of a peer."""
    said = str(error)
    if "nccl" in said.lower() and _SET_UP.search(said) and not _OF_A_PEER.search(said):
        raise DeviceError(
            f"NCCL does not work here ({one_line(error)}); NCCL_DEBUG=WARN in the environment makes it say "
            "why, and a container may need a larger --shm-size"
        ) from error


def _join(context: Context) -> dist.ProcessGroup:
    """Join the other ranks, and return their control group.

    Raises `DeviceError` where they are not found, `PeerError` where one was lost.
    """
    rendezvous = context.placement.rendezvous
    method = rendezvous.init_method
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    shared = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if attempt != "0" and shared and method == "env://":
        raise DeviceError(f"to start ranks again torchrun needs {FRESH_STORE}=1 in its environment; set it")
    choose_interface(context)
    if method.startswith("file:"):  # a file serves one rendezvous: what it holds would mislead the next
        run, port = os.environ.get("TORCHELASTIC_RUN_ID", "run"), os.environ["MASTER_PORT"]
        # hosts count attempts each for itself, and agree on a port
        method += f".{run}.{attempt if context.local_world_size == context.world_size else port}"
    begin, set_timeout = time.monotonic(), getattr(dist, "set_timeout", None)  # older torch has none
    try:
        dist.init_process_group(
            rendezvous.backend,
            init_method=method,
            timeout=rendezvous.timeout,
            rank=context.rank,
            world_size=context.world_size,
        )
        to_connect = CONTROL_TIMEOUT if set_timeout is None else rendezvous.timeout
        control = dist.new_group(backend="gloo", timeout=to_connect)
    except (dist.DistError, RuntimeError, ValueError, OSError) as error:
        refuse_set_up(error)
        waited = time.monotonic() - begin >= rendezvous.timeout_seconds
        kind = DeviceError if waited or "EADDRINUSE" in str(error) else PeerError
        raise kind(
            f"rank {context.rank} of {context.world_size} did not find the others by {method} within "
            f"{rendezvous.timeout_seconds:g} s ({one_line(error)}); see PARASHOT_INIT_METHOD"
        ) from error
    assert isinstance(control, dist.ProcessGroup)
    if set_timeout is not None:
        set_timeout(CONTROL_TIMEOUT, control)
    return control
