"""Run one function in several processes.

Torch's own elastic launcher starts them; where torchrun has started them, they are joined.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any, Concatenate, ParamSpec, TypeVar

from parashot.errors import DeviceError, ParashotError, PeerError, one_line
from parashot.files import write_text
from parashot.parallel.context import FRESH_STORE, Context, Placement, by_file, process_context
from parashot.parallel.meeting import launch_folder
from parashot.parallel.torchrun import joined_by_torchrun
from parashot.progress import OneLine

P = ParamSpec("P")
T = TypeVar("T")


def launch(
    function: Callable[Concatenate[Context, P], T],
    placement: Placement,
    processes: int,
    *args: P.args,
    **kwargs: P.kwargs,
) -> T | None:
    """Call `function(context, *args, **kwargs)` in `processes` processes and return what rank 0 returned.

    One process is this one. Under torchrun this process is a rank already: every rank calls `launch`, and all
    but the first get None. `function` and its arguments are pickled, so `function` stands at the top of a
    module. Where a rank is lost (it is killed, or says so by `PeerError`) all are started again,
    `placement.meeting.max_restarts` times at most, and `function` has to see for itself where it was. Where
    one fails in another way, or too often, all are ended, and `DeviceError` says in one line what the one
    that failed first said.
    """
    if processes == 1 and not joined_by_torchrun():
        with process_context(placement) as context:
            return function(context, *args, **kwargs)
    if joined_by_torchrun():
        with process_context(placement) as context:
            result = function(context, *args, **kwargs)
            return result if context.is_first else None
    return _start(function, placement, processes, args, kwargs)


def _start(
    function: Callable[..., T],
    placement: Placement,
    processes: int,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> T:
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    for noisy in ("torch.distributed.elastic", "torch.distributed.launcher", "torch.multiprocessing.spawn"):
        # what they say of a failure is told in one line below
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    os.environ[FRESH_STORE] = "1"
    verbosity = logging.getLogger().getEffectiveLevel()
    with launch_folder() as folder:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=processes,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint=str(folder / "launcher"),
            rdzv_configs={"store_type": "file"},
            local_addr="localhost",
            start_method="spawn",
            max_restarts=placement.meeting.max_restarts,
            monitor_interval=0.1,
            logs_specs=DefaultLogsSpecs(log_dir=str(folder)),
        )
        notes = folder / "failures"
        notes.mkdir()
        placement = by_file(placement, folder / "ranks")
        try:
            with _signals_given_back():
                results = elastic_launch(config, _rank)(function, placement, verbosity, notes, args, kwargs)
        except SignalException as error:  # the launcher has ended the ranks
            raise KeyboardInterrupt from error
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            last_words = _first_words(notes)
            raise DeviceError(last_words or f"rank {rank} ended with exit code {failure.exitcode}") from error
    outcome: T = results[0]
    return outcome


@contextmanager
def _signals_given_back() -> Iterator[None]:
    """Torch's launcher keeps the signals it has taken; one that comes later would end in its traceback."""
    taken = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT]
    before = {each: handler for each in taken if (handler := signal.getsignal(each)) is not None}
    try:
        yield
    finally:
        if current_thread() is main_thread():  # no other may set them, nor has
            for each, handler in before.items():
                signal.signal(each, handler)


def _rank(
    function: Callable[..., Any],
    placement: Placement,
    verbosity: int,
    failures: Path,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """One rank: call the function; only the first rank's result travels back.

    A rank that fails notes when and why: its peers fail a moment later for want of it, and their words
    mislead.
    """
    logging.basicConfig(level=verbosity, format="%(message)s", handlers=[OneLine()])
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if final := _final_words(failures):  # trying again would not help
        raise DeviceError(final)
    failures = failures / attempt
    failures.mkdir(exist_ok=True)
    with _noting(failures), process_context(placement) as context, _noting(failures):
        result = function(context, *args, **kwargs)
        return result if context.is_first else None


@contextmanager
def _noting(folder: Path) -> Iterator[None]:
    """Note a failure in `folder`, before leaving a process group lets the others fail too."""
    note = folder / f"{os.getpid()}.json"
    try:
        yield
    except Exception as error:
        if not note.exists():
            told = isinstance(error, ParashotError | OSError)
            message = one_line(error) if told else f"{type(error).__name__}: {one_line(error)}"
            tree = {"time": time.time(), "message": message, "final": not isinstance(error, PeerError)}
            write_text(note, json.dumps(tree))
        raise


def _final_words(folder: Path) -> str:
    """What a rank said, in any attempt, that no other attempt can mend; or nothing."""
    return _earliest([each for each in _notes(folder, "*") if each["final"]])


def _first_words(folder: Path) -> str:
    """What the rank said that failed first in the last attempt, or nothing where none could say a word."""
    attempts = sorted((int(path.name) for path in folder.iterdir()), reverse=True)
    return _final_words(folder) or next(
        (words for attempt in attempts if (words := _earliest(_notes(folder, str(attempt))))), ""
    )


def _notes(folder: Path, attempt: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob(f"{attempt}/*.json")]


def _earliest(notes: list[dict[str, Any]]) -> str:
    return str(min(notes, key=lambda note: note["time"])["message"]) if notes else ""
