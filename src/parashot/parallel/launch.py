"""Run one function in several processes.

Torch's own elastic launcher starts them; where torchrun has started them, they are joined.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import current_thread, main_thread
from typing import Any, TypeVar, TypeVarTuple

from torch import distributed as dist

from parashot.errors import DeviceError, PeerError, TaskError, described, one_line
from parashot.lifetime import end_with_maker, fork_server
from parashot.parallel.context import (
    FRESH_STORE,
    Context,
    Placement,
    by_file,
    process_context,
    refuse_set_up,
)
from parashot.parallel.server import IMPORTED_BY_OPTIMIZERS, joined_by_torchrun
from parashot.progress import OneLine, end_line

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_LOST = re.compile(r"gloo|nccl|timed? ?out|connection|peer|socket", re.IGNORECASE)
"""Words of torch's errors where a message did not arrive."""

_OF_MESSAGES = re.compile(r"gloo|nccl|pair closure", re.IGNORECASE)
"""Those that the user's own code would not use."""


def launch(
    function: Callable[[Context, *Ts], T], placement: Placement, processes: int, *args: *Ts
) -> T | None:
    """Call `function(context, *args)` in `processes` processes and return what rank 0 returned.

    One process is this one. Under torchrun this process is a rank already: every rank calls `launch`, and all
    but the main one get None. `function` and its arguments are pickled, so `function` stands at the top of a
    module. Where a rank is lost (it is killed, or raises `PeerError`) all are started again,
    `placement.rendezvous.max_restarts` times at most, and `function` has to see for itself where it was.
    Where one fails in another way, or too often, all are ended, and `DeviceError` has the message of the one
    that failed first.
    """
    if processes == 1 or joined_by_torchrun():
        return _call_here(function, placement, *args)
    return launch_apart(function, placement, processes, *args)


def launch_apart(
    function: Callable[[Context, *Ts], T], placement: Placement, processes: int, *args: *Ts
) -> T:
    """As `launch`, but a single process is not this one either, and torchrun has started none.

    What is timed owes nothing to what this process did before, and the next launch nothing to it.
    """
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    for noisy in (
        "torch.distributed.elastic",
        "torch.distributed.elastic.agent.server.api",  # has a level of its own
        "torch.distributed.launcher",
        "torch.multiprocessing.spawn",
    ):
        # what they say of a failure is raised in one line below
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    os.environ[FRESH_STORE] = "1"
    verbosity = logging.getLogger().getEffectiveLevel()
    # a server has its variables since it was started, so with others every rank starts by itself
    start_method = "spawn" if placement.variables else fork_server(IMPORTED_BY_OPTIMIZERS).get_start_method()
    with TemporaryDirectory(prefix="parashot-ranks-") as name, _environment_with(placement.variables):
        folder = Path(name)
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=processes,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint=str(folder / "launcher"),
            rdzv_configs={"store_type": "file"},
            local_addr="localhost",
            start_method=start_method,
            max_restarts=placement.rendezvous.max_restarts,
            monitor_interval=0.1,
            logs_specs=DefaultLogsSpecs(log_dir=str(folder)),
        )
        ranks, final = by_file(placement, folder / "ranks"), folder / "final"
        try:
            with _signals_restored():
                outcome: T = elastic_launch(config, _rank)(ranks, verbosity, final, function, args)[0]
                return outcome
        except SignalException as error:  # the launcher has ended the ranks
            raise KeyboardInterrupt from error
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            told: Any = failure.message  # out of torch's error file, which a killed rank has not written
            text = str(told.get("message", "")) if isinstance(told, dict) else ""
            message = text.partition(": ")[2] or f"rank {rank} ended with exit code {failure.exitcode}"
            raise DeviceError(final.read_text(encoding="utf-8") if final.exists() else message) from error


def _call_here(function: Callable[[Context, *Ts], T], placement: Placement, *args: *Ts) -> T | None:
    """Call the function in this process, a rank or alone; None on a rank that is not the main one."""
    with process_context(placement) as context, lost_peers_named(context):
        result = function(context, *args)
        return result if context.is_main else None


@contextmanager
def lost_peers_named(context: Context) -> Iterator[None]:
    """Turn the failure of a message between ranks into a `PeerError` of one line."""
    try:
        yield
    except PeerError:
        raise
    except Exception as error:
        if not is_of_a_peer(error, context):
            raise
        refuse_set_up(error)
        raise PeerError(
            f"rank {context.rank} lost a peer: it ended, or did not answer within PARASHOT_TIMEOUT_SECONDS "
            f"{context.placement.rendezvous.timeout_seconds:g} ({one_line(error)})"
        ) from error


def is_of_a_peer(error: BaseException, context: Context) -> bool:
    """Whether an error, or what an error in the user's code comes from, is of a message between ranks."""
    of_user = isinstance(error, TaskError) and error.__cause__ is not None
    cause, words = (error.__cause__, _OF_MESSAGES) if of_user else (error, _LOST)
    said = isinstance(cause, RuntimeError) and words.search(str(cause))
    return context.world_size > 1 and bool(said or isinstance(cause, PeerError | dist.DistError))


@contextmanager
def _environment_with(variables: Iterable[tuple[str, str]]) -> Iterator[None]:
    """Set variables, which are not set yet, for what is started within it."""
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, _ in variables:
            del os.environ[name]


@contextmanager
def _signals_restored() -> Iterator[None]:
    """Restore the signal handlers that torch's launcher replaces; a later signal would end in a traceback."""
    replaced = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT]
    before = {each: handler for each in replaced if (handler := signal.getsignal(each)) is not None}
    try:
        yield
    finally:
        if current_thread() is main_thread():  # no other may set them, nor has
            for each, handler in before.items():
                signal.signal(each, handler)


def _rank(
    placement: Placement,
    verbosity: int,
    final: Path,
    function: Callable[..., Any],
    args: tuple[Any, ...],
) -> Any:
    """Call the function on one rank; only the main rank's result travels back.

    Torch records what a rank raises in an error file, with its time. An error that another attempt cannot
    mend is written to `final` as well, and ends every further attempt at once.
    """
    end_with_maker()  # torch has SIGINT sent then, which some code swallows
    signal.signal(signal.SIGINT, _interrupt_once)
    logging.basicConfig(level=verbosity, format="%(message)s", handlers=[OneLine()])
    if final.exists():
        raise DeviceError(final.read_text(encoding="utf-8"))
    try:
        return _call_here(function, placement, *args)
    except PeerError:
        raise
    except (Exception, SystemExit) as error:  # without one torch takes the rank for one that has succeeded
        ends = isinstance(error, SystemExit)
        said = f"a rank ends by exit({error}); raise an error instead" if ends else described(error)
        final.write_text(said, encoding="utf-8")
        raise DeviceError(said) from error
    finally:
        end_line()


def _interrupt_once(*_: object) -> None:
    """Interrupt this rank. The launcher, which Ctrl-C reaches as well, sends another signal while it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt
