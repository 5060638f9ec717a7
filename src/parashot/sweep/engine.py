"""Ray: a function called for many arguments, on whichever node is idle. The only module that imports it.

Ray gives what a lost node was doing to another one. A call runs in a process of its own, so that nothing of
one is left for the next. On this machine alone, every port is open on the loopback only.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Generic, TypeVar

from parashot.errors import DeviceError, one_line
from parashot.hardware import usable_threads

A = TypeVar("A")
T = TypeVar("T")

_QUIET_SECONDS = 30.0
"""After so long without an answer, it is looked whether any node is left that could give one."""

_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True)
class Nodes:
    """Where calls go, and what each of them takes."""

    address: str | None = None  # HOST:PORT of a running cluster; None: this machine alone
    cpus: int = 1
    gpus: float = 0
    retries: int = 3  # how often a call is given to another process when its own, or the node, is lost


@dataclass(frozen=True)
class Failure:
    """In the place of an answer: why there is none, in one line."""

    reason: str


@dataclass(frozen=True)
class Shared(Generic[T]):
    """Something kept once for all nodes; travels as a name, and `fetch` brings it where it is needed."""

    reference: Any


class Engine:
    """A connection to the nodes."""

    def __init__(self, ray: ModuleType, nodes: Nodes) -> None:
        self._ray, self.nodes = ray, nodes

    def share(self, value: T) -> Shared[T]:
        """Keep `value` for all nodes."""
        return Shared(self._ray.put(value))

    def call_all(
        self, function: Callable[[A], T], arguments: Sequence[A]
    ) -> Iterator[tuple[int, T | Failure]]:
        """Call `function` for each of `arguments`; yield their positions with the answers, as they come.

        Raises `DeviceError` where no node has what a call takes.
        """
        self._check_room()
        remote = self._ray.remote(
            num_cpus=self.nodes.cpus,
            num_gpus=self.nodes.gpus,
            max_retries=self.nodes.retries,
            max_calls=1,
            scheduling_strategy="SPREAD",
        )(_call)
        waiting = {
            remote.remote(function, argument, self.nodes.gpus): index
            for index, argument in enumerate(arguments)
        }
        while waiting:
            done, _ = self._ray.wait(list(waiting), timeout=_QUIET_SECONDS)
            if not done:
                self._check_room()
            for reference in done:
                yield waiting.pop(reference), self._answer(reference)

    def _answer(self, reference: Any) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except errors.RayTaskError as error:
            if isinstance(error.cause, errors.RaySystemError):  # the node cannot import what it is to call
                return Failure(str(error.cause).partition("\n")[0])
            return Failure(f"{type(error.cause).__name__}: {one_line(error.cause)}")
        except errors.OutOfMemoryError:
            return Failure("the node's memory was full; let a run take more of its CPUs (--cpus-per-run)")
        except errors.RayError as error:
            lost = f"lost with its process or node, {self.nodes.retries} retries included"
            return Failure(f"{lost} ({type(error).__name__})")

    def _check_room(self) -> None:
        """Ray itself would wait for ever for a node that is large enough."""
        alive = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        wanted = {"CPU": self.nodes.cpus, "GPU": self.nodes.gpus}
        if not any(all(each.get(kind, 0) >= count for kind, count in wanted.items()) for each in alive):
            raise DeviceError(
                f"none of {len(alive)} nodes has {self.nodes.cpus} CPUs and {self.nodes.gpus:g} GPUs for a "
                "run; set --cpus-per-run and --gpus-per-run to what one has, or start a larger one"
            )


@contextmanager
def engine(nodes: Nodes) -> Iterator[Engine]:
    """Connect to the cluster at `nodes.address`, or start one of this machine alone, and end it afterwards.

    Raises `DeviceError` where Ray is not installed or the cluster cannot be reached.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # Ray would report its use to its makers
    if nodes.address is None:  # stay on the loopback, as Ray does by itself on the systems it names here
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    try:
        import ray
    except ImportError as error:
        raise DeviceError("Ray is not installed; run `pip install -e '.[sweep]'`") from error
    try:
        _connect(ray, nodes.address)
        yield Engine(ray, nodes)
    finally:
        ray.shutdown()


def fetch(shared: Shared[T]) -> T:
    """On a node: what `share` has kept."""
    import ray

    value: T = ray.get(shared.reference)
    return value


def _connect(ray: ModuleType, address: str | None) -> None:
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": "parashot"}
    if address is None:
        ray.init("local", include_dashboard=False, num_cpus=usable_threads(), **quiet)
        return
    try:
        _knock(address)
        ray.init(address, **quiet)
    except (OSError, RuntimeError, ValueError) as error:
        raise DeviceError(
            f"--address {address}: no Ray cluster answers there ({one_line(error)}); start one with "
            "`ray start --head`, run the sweep on one of its machines, and have the same token on all"
        ) from error


def _knock(address: str) -> None:
    """See whether anything listens at HOST:PORT; Ray itself would try for a minute."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host, int(port)), timeout=_PATIENCE_SECONDS).close()


def _call(function: Callable[[A], T], argument: A, gpus: float) -> T:
    """On a node: one call. What was promised no GPU sees none."""
    if gpus == 0:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    return function(argument)
