"""MLflow's store: `mlflow.db` and `mlruns` in the checkout, or the user's own server."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from parashot.errors import TrackingError, one_line
from parashot.tracking.experiment import Experiment

if TYPE_CHECKING:
    from mlflow import MlflowClient


def mlflow_is_installed() -> bool:
    """Whether there is any MLflow to tell: it is optional."""
    return find_spec("mlflow") is not None


_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # A training waits for seconds, not for MLflow's minutes, until a server is given up.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # A connection that is kept would go on with a file that has been moved or deleted.
    "MLFLOW_SQLALCHEMYSTORE_POOLCLASS": "NullPool",
}
"""Environment variables, the only way to tell MLflow these things; the user's own values stand."""

_LOCKED_SECONDS = 5.0


@dataclass(frozen=True)
class Store:
    """Place of MLflow's store: `root/mlflow.db` and `root/mlruns`, or the user's own `uri`.

    kept: where the results are that a store which fails is not told.
    """

    root: Path
    experiment: str
    uri: str | None = None
    kept: str = "the next `dvc repro` publishes what is missing"

    @classmethod
    def of_environment(cls, root: Path, experiment: str, kept: str = kept) -> Store:
        """Return the store that MLFLOW_TRACKING_URI names, the one in `root` where it names none.

        A relative path in it is one from `root`: DVC runs experiments of its queue in other folders.
        """
        uri = os.environ.get("MLFLOW_TRACKING_URI")
        return cls(root, experiment, _from(root.resolve(), uri) if uri else None, kept)

    @property
    def database(self) -> Path:
        """File of the store in `root`."""
        return self.root.resolve() / "mlflow.db"

    @property
    def artifacts(self) -> str | None:
        """Address of the experiment's artifacts; None where a server keeps them."""
        if self.uri is not None and self.uri.startswith(("http", "databricks")):
            return None
        return (self.root.resolve() / "mlruns" / re.sub(r"[^\w-]+", "-", self.experiment)).as_uri()


def _from(root: Path, uri: str) -> str:
    """The same address, its relative path taken from `root`."""
    scheme, separator, path = uri.partition(":///")
    if scheme == "sqlite" and separator:
        return f"sqlite:///{root / path}"
    parts = urlsplit(uri)
    if parts.scheme in ("", "file") and not parts.netloc and not uri.startswith("databricks"):
        return (root / parts.path).as_uri()
    return uri


@contextmanager
def opened(store: Store, *, wait: bool = True) -> Iterator[Experiment]:
    """Yield the experiment, locked against other processes of this checkout.

    Raises `TrackingError` for whatever MLflow raises, and `BlockingIOError` where another process holds the
    lock and `wait` is false.
    """
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError
    except ImportError as error:
        raise TrackingError(
            f'mlflow cannot be imported ({error}); pip install "parashot[mlflow]", or publish elsewhere'
        ) from error
    for name in ("mlflow", "alembic", "urllib3"):  # they tell of tables made, and of errors that they raise
        logging.getLogger(name).setLevel(logging.CRITICAL)
    uri = store.uri or f"sqlite:///{store.database}"
    try:
        with _locked(store.root / "mlruns" / ".lock", wait):
            if store.uri is None and store.database.exists():
                # locked or damaged, MLflow would try for minutes
                connected = sqlite3.connect(store.database, timeout=_LOCKED_SECONDS, isolation_level=None)
                with closing(connected) as connection:
                    connection.execute("BEGIN IMMEDIATE")
            client = MlflowClient(tracking_uri=uri)
            yield Experiment(client, _experiment_id(client, store))
    except BlockingIOError:
        raise
    except (MlflowException, SQLAlchemyError, sqlite3.Error, OSError) as error:
        reason = re.split(r" \[SQL: | \(Background on ", one_line(error))[0].rpartition("(Caused by ")[2]
        advice = "see whether MLFLOW_TRACKING_URI names a store that works"
        if store.uri is None:
            advice = "if that does not pass, move mlflow.db and mlruns away"
        raise TrackingError(
            f"MLflow at {uri} failed: {reason}; {advice}. No result is lost, {store.kept}"
        ) from error


def _experiment_id(client: MlflowClient, store: Store) -> str:
    """Find or make the experiment. Raises `TrackingError` where it was deleted, or is of another place."""
    found = client.get_experiment_by_name(store.experiment)
    if found is None:
        return str(client.create_experiment(store.experiment, store.artifacts))
    if store.uri is None and found.artifact_location != store.artifacts:
        raise TrackingError(
            f"{store.database} belongs to another place ({found.artifact_location}); move mlflow.db and "
            f"mlruns away. No result is lost, {store.kept}"
        )
    if found.lifecycle_stage == "deleted":
        raise TrackingError(
            f"the experiment {store.experiment} was deleted in MLflow; run "
            f"`mlflow experiments restore -x {found.experiment_id}`, or choose another name. "
            f"No result is lost, {store.kept}"
        )
    return str(found.experiment_id)


@contextmanager
def _locked(path: Path, wait: bool) -> Iterator[None]:
    """Hold the lock: MLflow's tables, and each run, must be looked for and made by one process at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
