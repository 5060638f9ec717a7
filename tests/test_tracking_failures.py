"""MLflow's store fails: a training gets one warning, a user one line, and each run is published once."""

from __future__ import annotations

import dataclasses
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from running import running
from tracked import Checkout, a_run, refusing_address
from werkzeug.serving import make_server

from parashot.errors import TrackingError
from parashot.records import Metric, Run
from parashot.tracking import Live, Published, Store, StudyRun, publish, store

RUNS = ("dp", "ddp")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for seconds waits for a moment."""
    monkeypatch.setattr(store, "_LOCKED_SECONDS", 0.1)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_JITTER", "0")


def record(checkout: Checkout) -> Path:
    """Two runs on disk, one of them with a file."""
    return checkout.record("train", a_run("dp"), a_run("ddp", artifacts=("history.csv",)))


def so_far(run: Run) -> Run:
    """The same run while it is made."""
    return dataclasses.replace(run, status="running", end_ms=None, artifacts=(), metrics=run.metrics[:1])


def assert_fails_in_one_line(store: Store, folder: Path, says: str, caplog: pytest.LogCaptureFixture) -> None:
    """Showing a training warns once and never raises; publishing raises; both in one line."""
    live = Live(store)
    for _ in range(3):
        live(so_far(a_run("ddp")))
    (warning,) = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    with pytest.raises(TrackingError) as raised:
        publish(store, StudyRun("study"), [folder])
    for line in (warning, str(raised.value)):
        assert says in line
        assert "No result is lost, the next `dvc repro` publishes what is missing" in line
        assert "\n" not in line


def assert_each_once(checkout: Checkout) -> None:
    """Every run is there once and whole; `runs` itself sees to it that no name occurs twice."""
    found = {name: run.info.status for name, run in checkout.runs().items()}
    assert found == dict.fromkeys([*RUNS, "study"], "FINISHED")
    for name in RUNS:
        assert checkout.points(name, "loss") == [(1, 0.5), (2, 0.25)]
        assert checkout.runs()[name].data.params == a_run(name).params
    run_id = checkout.runs()["ddp"].info.run_id
    assert [each.path for each in checkout.client.list_artifacts(run_id)] == ["history.csv"]


# --- the file ---------------------------------------------------------------------------------------


@contextmanager
def locked(root: Path) -> Iterator[None]:
    with closing(sqlite3.connect(root / "mlflow.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield


@contextmanager
def newer(root: Path) -> Iterator[None]:
    """The database of a MLflow that is to come."""
    whole = (root / "mlflow.db").read_bytes()
    with closing(sqlite3.connect(root / "mlflow.db")) as database, database:
        database.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")
    yield
    (root / "mlflow.db").write_bytes(whole)


@contextmanager
def corrupt(root: Path) -> Iterator[None]:
    """Not a database; what helps is what the message says: to delete it."""
    (root / "mlflow.db").write_bytes(b"not a database" * 1000)
    yield
    (root / "mlflow.db").unlink()
    shutil.rmtree(root / "mlruns")


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (locked, "database is locked; if that does not pass, move mlflow.db and mlruns away"),
        (newer, "ffffffffffff"),
        (corrupt, "file is not a database"),
    ],
)
def test_a_database_that_fails(
    checkout: Checkout,
    empty_database: Path,
    caplog: pytest.LogCaptureFixture,
    harm: Callable[[Path], AbstractContextManager[None]],
    says: str,
) -> None:
    folder = record(checkout)
    if harm is not newer:  # MLflow looks once in a process how new a database is
        checkout.publish(folder)
    with harm(checkout.root):
        assert_fails_in_one_line(checkout.store, folder, says, caplog)
    if not (checkout.root / "mlflow.db").exists():  # MLflow believes that it has made it
        shutil.copy(empty_database, checkout.root / "mlflow.db")
    checkout.publish(folder)
    assert_each_once(checkout)


def test_what_only_the_user_can_mend_is_told(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = record(checkout)
    with (
        monkeypatch.context() as patch,
        pytest.raises(TrackingError, match=r"mlflow cannot be imported .*parashot\[mlflow\]"),
    ):
        patch.setitem(sys.modules, "mlflow", None)
        checkout.publish(folder)
    checkout.client.create_experiment("moved", artifact_location="file:///some/other/place")
    moved = dataclasses.replace(checkout.store, experiment="moved")
    with pytest.raises(TrackingError, match=r"belongs to another place \(file:///some/other/place\); move"):
        publish(moved, StudyRun("study"), [folder], checkout.load_model)
    checkout.client.delete_experiment(
        checkout.client.create_experiment(checkout.store.experiment, checkout.store.artifacts)
    )
    with pytest.raises(TrackingError, match="deleted in MLflow; run `mlflow experiments restore -x "):
        checkout.publish(folder)


def test_a_training_does_not_wait_for_others_that_publish(
    checkout: Checkout, caplog: pytest.LogCaptureFixture
) -> None:
    live = Live(checkout.store)
    with store._locked(checkout.root / "mlruns/.lock", True):
        live(so_far(a_run("ddp")))
    assert (caplog.text, checkout.runs()) == ("", {})
    live(so_far(a_run("ddp")))
    assert checkout.runs()["ddp"].info.status == "RUNNING"


# --- the server -------------------------------------------------------------------------------------


class Failing:
    """A WSGI application: passes on to `app` the first `healthy` requests, and answers 500 from then on."""

    def __init__(self, app: Any, healthy: int) -> None:
        self.app, self.healthy = app, healthy
        self.requests = 0

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.requests += 1
        if self.requests <= self.healthy:
            answer: Iterable[bytes] = self.app(environ, start_response)
            return answer
        start_response("500 Internal Server Error", [])
        return []


def serving(app: Any) -> AbstractContextManager[str]:
    """A server of the WSGI application `app`, as `running` has it."""
    return running(make_server("127.0.0.1", 0, app, threaded=True))


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Iterator[Any]:
    """MLflow's own server, with a database and artifacts of its own."""
    folder = tmp_path_factory.mktemp("server")
    with pytest.MonkeyPatch.context() as patch:
        database = shutil.copy(empty_database, folder / "server.db")
        patch.setenv("_MLFLOW_SERVER_FILE_STORE", f"sqlite:///{database}")
        patch.setenv("_MLFLOW_SERVER_SERVE_ARTIFACTS", "true")
        patch.setenv("_MLFLOW_SERVER_ARTIFACT_ROOT", "mlflow-artifacts:/")
        patch.setenv("_MLFLOW_SERVER_ARTIFACT_DESTINATION", folder.as_uri())
        from mlflow.server import app

        yield app


def test_a_server_that_fails(
    checkout: Checkout, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    away = dataclasses.replace(checkout.store, uri=refusing_address())
    assert_fails_in_one_line(away, record(checkout), "refused", caplog)
    assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "0", "the user's own value stands"


@pytest.mark.parametrize("healthy", [3, 16])
def test_a_server_that_fails_half_way(checkout: Checkout, app: Any, healthy: int) -> None:
    folder, failing = record(checkout), Failing(app, healthy)
    with serving(failing) as address:
        checkout.store = Store(checkout.root, f"fails after {healthy} requests", address)
        with pytest.raises(TrackingError):
            checkout.publish(folder)
        failing.healthy = sys.maxsize
        checkout.publish(folder)
        assert_each_once(checkout)
        assert checkout.publish(folder) == Published(already_there=3)
    os.environ.pop("MLFLOW_TRACKING_URI", None)  # which the server sets for its own process


# --- many at once -----------------------------------------------------------------------------------

LOG_IN_MANY_PROCESSES = """
import logging, os, sys, traceback
from dataclasses import replace
from pathlib import Path

from parashot.records import read_runs
from parashot.tracking import Live, Store, StudyRun, publish
from parashot.tracking.store import _locked

root = Path(sys.argv[1])
store = Store(root, "few shots")
folders = list((root / "results").iterdir())
logging.basicConfig(level=logging.INFO)  # as stages do
with _locked(root / "mlruns/.lock", True):  # so that MLflow is imported once for all, and no store is made
    Live(store)(read_runs(folders[0] / "records.jsonl")[0])

import mlflow
from mlflow.telemetry import get_telemetry_client

def log(folder):
    live = Live(store)
    for run in read_runs(folder / "records.jsonl"):
        for points in (10, 40):
            live(replace(run, status="running", end_ms=None, metrics=run.metrics[:points]))
    publish(store, StudyRun(f"study {folder.name}"), [folder], None)
    assert not {"torch", "mlflow.pytorch"} & set(sys.modules)
    assert get_telemetry_client() is None

children = []
for folder in folders:
    child = os.fork()
    if child == 0:
        try:
            log(folder)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    children.append(child)
failed = sum(os.waitpid(child, 0)[1] != 0 for child in children)
os.chdir(root)
found = mlflow.search_runs(experiment_names=["few shots"], output_format="list")  # as a user looks
assert len(found) == 3 * len(children), found
sys.exit(failed)
"""


def test_processes_that_log_at_once_lose_nothing(tmp_path: Path) -> None:
    """Into a store that none of them finds there. Nothing is printed or heavy, and nobody else is told."""
    checkout, processes = Checkout(tmp_path / "root", None), 3
    points = tuple(Metric("loss", 1 / step, step, 1_000 + step) for step in range(1, 51))
    for number in range(processes):
        checkout.record(str(number), *[a_run(f"{name} {number}", metrics=points) for name in RUNS])
    forking = "ignore:This process"  # from Python 3.12 on, of the script's own forks beside MLflow's threads
    command = [sys.executable, "-W", forking, "-c", LOG_IN_MANY_PROCESSES, str(checkout.root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    names = [f"{name} {number}" for name in ("study", *RUNS) for number in range(processes)]
    found = {name: run.info.status for name, run in checkout.runs().items()}
    assert found == dict.fromkeys(names, "FINISHED")
    for name in names[processes:]:
        assert checkout.points(name, "loss") == [(each.step, each.value) for each in points]
