"""MLflow's store fails in every way that stores do: trainings end, and each run is published exactly once."""

from __future__ import annotations

import dataclasses
import logging
import os
import runpy
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pytest
from faulty_server import faulty, refusing_address
from tiny_data import tiny_params
from tracked import Checkout, a_run, python, start

from parashot.errors import TrackingError
from parashot.parallel.strategy import Strategy
from parashot.records import Metric, Run, read_runs
from parashot.tracking import Live, Published, Store, Study, publish
from parashot.tracking.store import Patience, _locked
from parashot.train.job import Job
from parashot.train.run import train

PROCESSES = 10
SCREENSHOTS = Path(__file__).parents[1] / "tools/screenshots.py"
RUNS = ("dp", "ddp")
ALL = {*RUNS, "study"}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for minutes waits for a moment."""
    module = import_module("parashot.tracking.publish")
    monkeypatch.setattr(module, "PUBLISHING", Patience(others=30, database=0.2, answers=None))
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_JITTER", "0")


def record(checkout: Checkout) -> Path:
    """Two runs on disk, one of them with a file."""
    return checkout.record("train", a_run("dp"), a_run("ddp", artifacts=("history.csv",)))


def so_far(run: Run) -> Run:
    """The same run while it is made."""
    return dataclasses.replace(run, status="running", end_ms=None, artifacts=(), metrics=run.metrics[:1])


def assert_live_is_told_once(store: Store, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """Showing a training neither raises nor waits for long, and warns in one line."""
    live = Live(store)
    caplog.clear()
    for _ in range(3):
        live(so_far(run))
    (warning,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    said = warning.getMessage()
    assert said.startswith("MLflow shows no more of this training: MLflow at ")
    assert "\n" not in said


def assert_one_line(error: TrackingError, says: str) -> None:
    assert says in str(error)
    assert "no result is lost, the next `dvc repro` publishes what is missing" in str(error)
    assert "\n" not in str(error)


def assert_each_once(checkout: Checkout) -> None:
    """Every run is there once and whole; `runs` itself sees to it that no name occurs twice."""
    assert {name: run.info.status for name, run in checkout.runs().items()} == dict.fromkeys(ALL, "FINISHED")
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
    was = _revision(root, "ffffffffffff")
    yield
    _revision(root, was)


def _revision(root: Path, new: str) -> str:
    with closing(sqlite3.connect(root / "mlflow.db")) as database, database:
        was = str(database.execute("SELECT version_num FROM alembic_version").fetchone()[0])
        database.execute("UPDATE alembic_version SET version_num = ?", (new,))
    return was


@contextmanager
def corrupt(root: Path) -> Iterator[None]:
    """Not a database; what helps is what the message says: to move it away."""
    (root / "mlflow.db").write_bytes(b"not a database" * 1000)
    yield
    (root / "mlflow.db").unlink()


@contextmanager
def damaged(root: Path) -> Iterator[None]:
    """A database whose first page is good and whose others are not."""
    file = root / "mlflow.db"
    whole = file.read_bytes()
    file.write_bytes(whole[:4096] + bytes(len(whole) - 4096))
    yield
    file.write_bytes(whole)


@contextmanager
def read_only(root: Path) -> Iterator[None]:
    file = root / "mlflow.db"
    if os.getuid():
        file.chmod(0o444)
        yield
        file.chmod(0o644)
    else:  # root may write to it whatever its mode
        with mounted(file, "--bind", str(file)):
            subprocess.run(["mount", "-o", "remount,bind,ro", str(file)], check=True)
            yield


@contextmanager
def full(root: Path) -> Iterator[None]:
    """A disk of a few MiB with no byte left."""
    whole = (root / "mlflow.db").read_bytes()
    with mounted(root, "-t", "tmpfs", "-o", "size=4m", "none"):
        (root / "mlflow.db").write_bytes(whole)
        record(Checkout(root, None))
        with pytest.raises(OSError, match="No space left"), (root / "filler").open("wb") as filler:
            while True:
                filler.write(bytes(4096))
                filler.flush()
        yield
        (root / "filler").unlink()
        shutil.copytree(root, f"{root} after")
    shutil.copytree(f"{root} after", root, dirs_exist_ok=True)


@contextmanager
def mounted(place: Path, *what: str) -> Iterator[None]:
    done = subprocess.run(["mount", *what, str(place)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"mounts are not permitted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (locked, "database is locked (another program holds it: end that)"),
        (newer, "another version of MLflow made it"),
        (corrupt, "file is not a database (move mlflow.db away, all of it is made again)"),
        (damaged, "malformed (move mlflow.db away, all of it is made again)"),
        (read_only, "readonly database (make the file and its folder writable)"),
        (full, "free some space"),
    ],
)
def test_a_database_that_fails(
    checkout: Checkout,
    caplog: pytest.LogCaptureFixture,
    harm: Callable[[Path], AbstractContextManager[None]],
    says: str,
) -> None:
    folder = record(checkout)
    with harm(checkout.root):
        assert_live_is_told_once(checkout.store, a_run("ddp"), caplog)
        with pytest.raises(TrackingError) as raised:
            checkout.publish(folder)
    assert_one_line(raised.value, says)
    assert not [path.name for path in checkout.root.glob("mlflow.db.*")]
    checkout.publish(folder)
    assert_each_once(checkout)
    assert checkout.publish(folder) == Published(already_there=3)


PUBLISH = """
import sys
from pathlib import Path
from parashot.tracking import Store, Study, publish

root, folder = map(Path, sys.argv[1:])
publish(Store(root, "few shots"), Study("study"), [folder], None)
"""


def test_a_store_that_is_gone_is_made_again(checkout: Checkout) -> None:
    folder = record(checkout)
    assert python(PUBLISH, checkout.root, folder).returncode == 0
    (checkout.root / "mlflow.db").unlink()
    shutil.rmtree(checkout.root / "mlruns")
    assert checkout.publish(folder) == Published(published=3)
    assert_each_once(checkout)


def test_a_store_that_goes_while_a_training_is_shown(
    checkout: Checkout, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    folder, live = record(checkout), Live(checkout.store)
    live(so_far(a_run("ddp")))
    assert caplog.text == ""
    (checkout.root / "mlflow.db").unlink()
    live(a_run("ddp", status="running", end_ms=None))
    assert python(PUBLISH, checkout.root, folder).returncode == 0
    shutil.copytree(checkout.root, tmp_path / "seen afresh")
    assert_each_once(Checkout(tmp_path / "seen afresh", None))


def test_a_store_whose_making_was_cut_off_is_made_again(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "root", None)
    folder = record(checkout)
    making = start(PUBLISH, checkout.root, folder)
    while not (checkout.root / "mlflow.db.new").exists():
        assert making.poll() is None
        time.sleep(0.01)
    making.kill()
    making.communicate()
    assert not (checkout.root / "mlflow.db").exists()
    assert checkout.publish(folder) == Published(published=3)
    assert_each_once(checkout)
    assert not (checkout.root / "mlflow.db.new").exists()


# --- the server -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an `mlflow ui` as the project starts it."""
    pytest.importorskip("playwright")
    with runpy.run_path(str(SCREENSHOTS))["mlflow_ui"](tmp_path_factory.mktemp("server")) as address:
        yield address


@pytest.fixture
def served(server: str, checkout: Checkout, request: pytest.FixtureRequest) -> Checkout:
    """A checkout whose store is an experiment of its own on the server."""
    checkout.store = Store(checkout.root, request.node.name, server)
    return checkout


def behind(checkout: Checkout, address: str) -> Store:
    return dataclasses.replace(checkout.store, uri=address)


def test_a_server_listens_on_the_loopback_alone(server: str) -> None:
    port = int(server.rpartition(":")[2])
    listening = [each for each in psutil.net_connections("inet") if each.status == psutil.CONN_LISTEN]
    assert {each.laddr.ip for each in listening if each.laddr.port == port} == {"127.0.0.1"}


@contextmanager
def answers_within(seconds: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", str(seconds))
        yield


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("refuse", "refused (see whether the server runs)"),
        ("error", "too many 500 error responses')) (see whether the server runs)"),
        ("hang", "timed out (see whether the server runs)"),
        ("page", "(no MLflow server answers there: correct MLFLOW_TRACKING_URI)"),
    ],
)
def test_a_server_that_fails(
    served: Checkout, caplog: pytest.LogCaptureFixture, fault: str, says: str
) -> None:
    folder = record(served)
    with faulty(fault) as bad, answers_within(1):
        away = behind(served, refusing_address() if fault == "refuse" else bad.address)
        assert_live_is_told_once(away, a_run("ddp"), caplog)
        with pytest.raises(TrackingError) as raised:
            publish(away, Study("study"), [folder], served.load_model)
    assert_one_line(raised.value, says)
    assert served.publish(folder) == Published(published=3)
    assert_each_once(served)


@pytest.mark.parametrize(("fault", "healthy"), [("error", 3), ("error", 7), ("error", 16), ("hang", 7)])
def test_a_server_that_fails_half_way(served: Checkout, server: str, fault: str, healthy: int) -> None:
    folder = record(served)
    limit = answers_within(5 if fault == "hang" else 60)
    with faulty(fault, server, healthy) as bad, limit, pytest.raises(TrackingError):
        publish(behind(served, bad.address), Study("study"), [folder], served.load_model)
    assert len(bad.asked) > healthy
    served.publish(folder)
    assert_each_once(served)
    assert served.publish(folder) == Published(already_there=3)


def test_a_run_whose_answer_was_lost_is_there_once(served: Checkout, server: str) -> None:
    folder = record(served)
    with faulty("lose", server) as bad:
        publish(behind(served, bad.address), Study("study"), [folder], served.load_model)
    assert bad.asked.count("/api/2.0/mlflow/runs/create") == 4
    served.publish(folder)
    assert_each_once(served)


# --- trainings --------------------------------------------------------------------------------------


def job(packed: Path, out: Path, live: Live) -> Job:
    settings = {"tracking.live_seconds": 0, "train.episodes": 18}
    return Job("serial", tiny_params(settings), packed, out, live=live)


@pytest.mark.usefixtures("one_core")
@pytest.mark.parametrize("fault", ["hang", "drip"])
def test_a_training_does_not_wait_for_a_server(
    checkout: Checkout,
    tiny_packed: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: str,
) -> None:
    """MLflow itself would wait for a minute here, or for ever."""
    monkeypatch.setattr(import_module("parashot.tracking.publish"), "LIVE", Patience(0, 0.1, answers=0.3))
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
    out = checkout.root / "results/train"
    with faulty(fault) as bad:
        done = train(job(tiny_packed, out, Live(behind(checkout, bad.address))))
        asked = len(bad.asked)
    assert done is not None and done.status == "ok"
    assert asked == 1
    assert caplog.text.count("no answer within 0.3 s (see whether the server runs)") == 1
    (run,) = read_runs(out / "records.jsonl")
    assert checkout.publish(out) == Published(published=2)
    assert checkout.runs()[run.name].info.status == "FINISHED"


def test_a_training_does_not_wait_for_others_that_publish(
    checkout: Checkout, caplog: pytest.LogCaptureFixture
) -> None:
    live = Live(checkout.store)
    (checkout.root / "mlruns").mkdir()
    with _locked(checkout.root / "mlruns/.lock", 1):
        live(so_far(a_run("ddp")))
    assert caplog.text == ""
    assert checkout.runs() == {}
    live(so_far(a_run("ddp")))
    assert checkout.runs()["ddp"].info.status == "RUNNING"


@pytest.mark.usefixtures("one_core")
def test_a_training_that_fails_is_closed(
    checkout: Checkout, tiny_packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, taken = Strategy.step, count()

    def failing(self: Strategy, batch: Any) -> Any:
        if next(taken) >= 8:  # three of which measure memory
            raise RuntimeError("the device is lost")
        return real(self, batch)

    monkeypatch.setattr(Strategy, "step", failing)
    with pytest.raises(RuntimeError, match="the device is lost"):
        train(job(tiny_packed, checkout.root / "results/train", Live(checkout.store)))
    (run,) = checkout.runs().values()
    assert (run.info.status, run.data.tags["status"]) == ("FAILED", "failed")
    assert {"val_accuracy", "loss"} <= run.data.metrics.keys()


# --- many at once -----------------------------------------------------------------------------------

LOG_IN_MANY_PROCESSES = f"""
import os, sys, traceback
from dataclasses import replace
from pathlib import Path

from mlflow import MlflowClient  # once for all
from parashot.records import read_runs
from parashot.tracking import Live, Store, Study, publish

root = Path(sys.argv[1])
store = Store(root, "few shots")

def log(number):
    folder = root / f"results/{{number}}"
    live = Live(store)
    for run in read_runs(folder / "records.jsonl"):
        for points in (10, 40):
            live(replace(run, status="running", end_ms=None, metrics=run.metrics[:points]))
    publish(store, Study(f"study {{number}}"), [folder], None)

children = []
for number in range({PROCESSES}):
    child = os.fork()
    if child == 0:
        try:
            log(number)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    children.append(child)
sys.exit(sum(os.waitpid(child, 0)[1] != 0 for child in children))
"""


def test_processes_that_log_at_once_lose_nothing(
    tmp_path: Path, record_property: Callable[[str, int], None]
) -> None:
    """Into a store that none of them finds there."""
    checkout = Checkout(tmp_path / "root", None)
    points = tuple(Metric("loss", 1 / step, step, 1_000 + step) for step in range(1, 51))
    for number in range(PROCESSES):
        checkout.record(str(number), *[a_run(f"{name} {number}", metrics=points) for name in RUNS])
    done = python(LOG_IN_MANY_PROCESSES, checkout.root)
    assert done.returncode == 0, done.stderr
    names = [f"{name} {number}" for name in ("study", *RUNS) for number in range(PROCESSES)]
    assert {name: run.info.status for name, run in checkout.runs().items()} == dict.fromkeys(
        names, "FINISHED"
    )
    for name in names[PROCESSES:]:
        assert checkout.points(name, "loss") == [(each.step, each.value) for each in points]
    record_property("processes_logging", PROCESSES)
