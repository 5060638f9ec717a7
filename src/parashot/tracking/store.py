"""Where MLflow keeps what it is told, and how it is opened: by one process at a time, and silently."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import sqlite3
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from parashot.errors import TrackingError, one_line
from parashot.tracking.database import file_of, prepare
from parashot.tracking.experiment import Experiment
from parashot.tracking.limit import TimeIsUp, at_most

if TYPE_CHECKING:
    from mlflow import MlflowClient

_MLFLOW_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # A server that is not there is given up after seconds, not after minutes.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}
"""Environment variables, the only way to tell MLflow these things; the user's own values stand."""


@dataclass(frozen=True)
class Store:
    """Where MLflow keeps what it is told: `root/mlflow.db` and `root/mlruns`, or the user's own `uri`."""

    root: Path
    experiment: str
    uri: str | None = None


@dataclass(frozen=True)
class Patience:
    """Seconds to wait: for others that publish, for a database that is locked, for all answers."""

    others: float
    database: float
    answers: float | None


PUBLISHING = Patience(others=120, database=20, answers=None)
LIVE = Patience(others=0, database=0.5, answers=5)
"""Meanwhile a training waits."""

_ADVICE = {
    r"database is locked": "another program holds it: end that",
    r"readonly database|unable to open": "make the file and its folder writable",
    r"disk is full|No space left|disk I/O error": "free some space",
    r"not a database|malformed|no such (table|column)": "move mlflow.db away, all of it is made again",
    r"database schema|locate revision": "another version of MLflow made it: install that one, or move "
    "mlflow.db away, all of it is made again",
    r"not in a valid JSON format": "no MLflow server answers there: correct MLFLOW_TRACKING_URI",
    r"^no answer|timed out|refused|unreachable|HTTPS?Connection": "see whether the server runs",
}
"""What to do, by what is said."""


class StoreBusyError(TrackingError):
    """Another process publishes just now."""


@contextmanager
def opened(store: Store, patience: Patience) -> Iterator[Experiment]:
    """Yield the experiment, locked against other processes. What MLflow raises becomes `TrackingError`."""
    for name, value in _MLFLOW_SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError
    except ImportError as error:
        raise TrackingError(
            f"mlflow is not installed here ({error}); install it, or publish elsewhere"
        ) from error
    root = store.root.resolve()
    uri = store.uri or f"sqlite:///{root / 'mlflow.db'}"
    try:
        with _locked(root / "mlruns" / ".lock", patience.others), _quiet():
            if file := file_of(uri):
                prepare(file, patience.database)
            with at_most(patience.answers):
                with _no_connection_kept() if file else nullcontext():
                    client = MlflowClient(tracking_uri=uri)
                yield Experiment(client, _experiment_id(client, store, root, uri))
    except TimeIsUp:
        raise _failed(uri, f"no answer within {patience.answers:g} s") from None
    except (MlflowException, SQLAlchemyError, sqlite3.Error, OSError) as error:
        raise _failed(uri, _gist(error)) from error


def _failed(uri: str, gist: str) -> TrackingError:
    advice = next((each for said, each in _ADVICE.items() if re.search(said, gist)), "")
    what_to_do = f" ({advice})" if advice else ""
    return TrackingError(
        f"MLflow at {uri} failed: {gist}{what_to_do}; "
        "no result is lost, the next `dvc repro` publishes what is missing"
    )


def _experiment_id(client: MlflowClient, store: Store, root: Path, uri: str) -> str:
    """Find or make the experiment. Its artifacts lie at the root, unless a server keeps them."""
    folder = root / "mlruns" / re.sub(r"[^\w-]+", "-", store.experiment)
    location = None if uri.startswith(("http", "databricks")) else folder.as_uri()
    found = client.get_experiment_by_name(store.experiment)
    if found is None:
        return str(client.create_experiment(store.experiment, artifact_location=location))
    if found.lifecycle_stage == "deleted":
        raise TrackingError(
            f"the MLflow experiment {store.experiment!r} was deleted; bring it back with `mlflow experiments "
            f"restore --experiment-id {found.experiment_id}`, or choose another name in tracking.experiment"
        )
    if store.uri is None and found.artifact_location != location:
        raise TrackingError(
            f"{root / 'mlflow.db'} belongs to another place ({found.artifact_location}); "
            "delete mlflow.db and mlruns, and `dvc repro` publishes every run again"
        )
    return str(found.experiment_id)


@contextmanager
def _locked(path: Path, seconds: float) -> Iterator[None]:
    """Hold the lock: MLflow's first call makes its tables, and look-up and creation of a run must not mix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + seconds
    with path.open("w") as file:
        while not _try_lock(file):
            if time.monotonic() > deadline:
                raise StoreBusyError(
                    f"{path} is held by another process that publishes; try again when it is done"
                )
            time.sleep(0.05)
        yield


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _no_connection_kept() -> Iterator[None]:
    """A connection that is kept would go on with a file that has been moved or deleted."""
    name = "MLFLOW_SQLALCHEMYSTORE_POOLCLASS"
    own = name not in os.environ
    os.environ.setdefault(name, "NullPool")
    try:
        yield
    finally:
        if own:
            del os.environ[name]


@contextmanager
def _quiet() -> Iterator[None]:
    """MLflow tells of its tables and versions, which a user cannot mend, and of failures that it raises."""
    loggers = [logging.getLogger(name) for name in ("mlflow", "alembic", "urllib3")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _gist(error: Exception) -> str:
    """What the database's driver or the system says; around it stand statements, links and retries."""
    root: BaseException = error
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, sqlite3.Error | OSError):
            root = cause
        cause = getattr(cause, "orig", None) or cause.__cause__ or cause.__context__
    return one_line(root)[:300]
