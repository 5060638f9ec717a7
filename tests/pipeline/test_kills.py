"""A study whose processes are killed at random moments: the next `dvc repro` goes on, and nothing shows."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import yaml
from checkouts import Checkout, apply_settings

from parashot.records import read_result
from parashot.train.records import TrainResult

SETTINGS = (
    "train.episodes=1200",  # some seconds of training
    "train.validate_every=100",
    "train.checkpoint_every=10",
    "loader.workers=2",
    "tracking.live_seconds=1",
    # what is measured may be chosen another way the next time
    "model.pairing=split",
    "train.precision=fp32",
    "train.compile=none",
)
TRAININGS = ("train-serial", "train-ddp")
PATIENCE_SECONDS = 300

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are told apart by /proc")

Chooser = Callable[[psutil.Process], list[psutil.Process]]


def stages(dvc: psutil.Process) -> list[psutil.Process]:
    return [each for each in dvc.children() if says(each, "stages.train")]


def ranks(dvc: psutil.Process) -> list[psutil.Process]:
    return [rank for stage in stages(dvc) for rank in stage.children() if says(rank, "spawn_main")]


def workers(dvc: psutil.Process) -> list[psutil.Process]:
    """Loader workers: what a fork server, which a stage or a rank has started, has forked."""
    everyone = dvc.children(recursive=True)
    servers = [each for each in everyone if says(each, "forkserver")]
    return [worker for server in servers for worker in server.children()]


def says(process: psutil.Process, word: str) -> bool:
    with contextlib.suppress(psutil.Error):
        return any(word in each for each in process.cmdline())
    return False


@dataclass(frozen=True)
class Way:
    """Whom to send which signal; with `group`, everyone of DVC's process group, as Ctrl-C does."""

    name: str
    choose: Chooser
    sent: signal.Signals
    group: bool = False


WAYS = (
    Way("SIGKILL to dvc", lambda dvc: [dvc], signal.SIGKILL),
    Way("Ctrl-C", stages, signal.SIGINT, group=True),
    Way("SIGKILL to a loader worker", workers, signal.SIGKILL),
    Way("SIGKILL to a stage", stages, signal.SIGKILL),
    Way("SIGKILL to a rank", ranks, signal.SIGKILL),
    Way("SIGTERM to dvc", lambda dvc: [dvc], signal.SIGTERM),
    Way("SIGTERM to a stage", stages, signal.SIGTERM),
)


@dataclass(frozen=True)
class Trial:
    """A checkout whose trainings are killed, beside one where they were left in peace."""

    checkout: Checkout
    calm: Checkout
    trainings: Sequence[str]


@contextlib.contextmanager
def repro(checkout: Checkout, *targets: str) -> Iterator[psutil.Popen]:
    """A running `dvc repro` in a session of its own; at the end nothing of it may be left."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("DVC_", "MLFLOW_"))}
    with (checkout.root / "log.txt").open("ab") as log:
        dvc = psutil.Popen(
            ["dvc", "repro", *targets],
            cwd=checkout.root,
            env={**clean, "PATH": path, "DVC_NO_ANALYTICS": "1"},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=hear_ctrl_c,
        )
    try:
        yield dvc
    finally:
        for each in session(dvc.pid):
            with contextlib.suppress(psutil.Error):
                each.kill()
        dvc.wait()


def hear_ctrl_c() -> None:
    """What a shell starts in the background, and all that it starts, ignores Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def session(leader: int) -> list[psutil.Process]:
    """Every living process of a session, orphans too."""
    found = []
    for each in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getsid(each.pid) == leader and each.status() != psutil.STATUS_ZOMBIE:
                found.append(each)
    return found


def has_begun(checkout: Checkout, before: float) -> bool:
    """Whether a training has saved its state since `before`."""
    for path in (checkout.root / ".scratch").rglob("*.pt"):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime > before:
                return True
    return False


def kill_once(trial: Trial, way: Way, chance: random.Random) -> bool:
    """Start the trainings and kill at a random moment; False where they were done before it came.

    The moment is one of the first seconds of a stage, or one after a state was saved: to begin takes a stage
    seconds, and how many depends on the machine. Waits until everything that was started has ended, which it
    must by itself.
    """
    begin, while_training = time.time(), chance.random() < 0.7
    with repro(trial.checkout, *trial.trainings) as dvc:
        victims: list[psutil.Process] = []
        while not victims:
            while not (
                way.choose(dvc) and (has_begun(trial.checkout, begin) if while_training else stages(dvc))
            ):
                if dvc.poll() is not None:
                    assert dvc.returncode == 0
                    return False
                time.sleep(0.02)
            time.sleep(chance.uniform(0, 2 if while_training else 10))
            victims = way.choose(dvc) if dvc.poll() is None else []  # none may be there between two stages
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if way.group:
                os.killpg(dvc.pid, way.sent)
            else:
                chance.choice(victims).send_signal(way.sent)
        dvc.wait(timeout=PATIENCE_SECONDS)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while left := session(dvc.pid):
            assert time.monotonic() < deadline, f"{way.name}: {[each.cmdline() for each in left]} live on"
            time.sleep(0.05)
    return True


def forget_trainings(checkout: Checkout, trainings: Sequence[str]) -> None:
    """Let the next `dvc repro` train anew, from the data that are there."""
    lock = checkout.root / "dvc.lock"
    tree = yaml.safe_load(lock.read_text(encoding="utf-8"))
    for name in trainings:
        tree["stages"].pop(name, None)
    lock.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
    shutil.rmtree(checkout.root / ".dvc/cache/runs", ignore_errors=True)
    shutil.rmtree(checkout.root / "results/train")


def leftovers(checkout: Checkout) -> list[Path]:
    """Temporaries, and states of trainings that are over."""
    tops = [checkout.root / each for each in ("data", "results", "reports", ".scratch")]
    files = [path for top in tops for path in top.rglob("*")]
    saved = list((checkout.root / ".scratch").rglob("*.pt"))
    return [*saved, *(path for path in files if path.suffix in {".tmp", ".old"})]


def assert_undisturbed(trial: Trial) -> int:
    """The trainings have ended as if nothing had been; returns how often they were taken up again."""
    resumed = 0
    for name in trial.trainings:
        folder = Path("results/train", name.removeprefix("train-"))
        here, there = (each.root / folder for each in (trial.checkout, trial.calm))
        for file in ("model.pt", "val_episodes.csv"):
            assert (here / file).read_bytes() == (there / file).read_bytes()
        result = read_result(TrainResult, here / "result.json")
        assert (result.seconds is None) == bool(result.resumed)  # no window of time is its wall time
        resumed += result.resumed
    assert leftovers(trial.checkout) == []
    return resumed


def statuses(checkout: Checkout) -> list[tuple[str, str]]:
    """Uuid and status of every run in MLflow."""
    query = "select value, status from runs join tags using (run_uuid) where key = 'parashot.uuid'"
    with sqlite3.connect(checkout.root / "mlflow.db") as database:
        return database.execute(query).fetchall()


@pytest.fixture(scope="module")
def calm(studied: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A study of longer trainings, undisturbed."""
    checkout = copied(studied, tmp_path_factory.mktemp("calm") / "checkout")
    apply_settings(checkout.root / "params.yaml", SETTINGS)
    checkout.run("dvc", "repro", *TRAININGS)
    return checkout


@pytest.fixture
def trial(calm: Checkout, tmp_path: Path, request: pytest.FixtureRequest) -> Trial:
    """Another checkout with the same data, in which some trainings are to be done."""
    checkout = copied(calm, tmp_path / "checkout")
    forget_trainings(checkout, request.param)
    return Trial(checkout, calm, request.param)


def copied(checkout: Checkout, root: Path) -> Checkout:
    """A copy with all its results; MLflow's store belongs to its own checkout."""
    left_out = shutil.ignore_patterns("mlflow.db*", "mlruns", "log.txt")
    shutil.copytree(checkout.root, root, symlinks=True, ignore=left_out)
    return Checkout(root)


def survive(trial: Trial, kills: int, seed: int) -> int:
    """Kill so many times, each way in turn; returns how often trainings were taken up again."""
    chance, killed, resumed = random.Random(seed), 0, 0
    while killed < kills:
        if kill_once(trial, WAYS[killed % len(WAYS)], chance):
            killed += 1
        else:  # all done before it came
            resumed += assert_undisturbed(trial)
            forget_trainings(trial.checkout, trial.trainings)
    trial.checkout.run("dvc", "repro", *trial.trainings)
    return resumed + assert_undisturbed(trial)


def assert_a_second_study_stops(trial: Trial) -> None:
    """Where one goes on in a checkout, another one says so, and the first goes on; then it is killed."""
    with repro(trial.checkout, *trial.trainings) as first:
        while not stages(first):
            assert first.poll() is None
            time.sleep(0.02)
        second = trial.checkout.run("dvc", "repro", *trial.trainings, check=False)
        assert second.returncode != 0
        assert f"PID {first.pid}" in second.stderr
        assert first.poll() is None


@pytest.mark.parametrize("trial", [("train-ddp",)], indirect=True, ids=["ddp"])
def test_killed_trainings_go_on(trial: Trial, record_property: Callable[[str, int], None]) -> None:
    assert_a_second_study_stops(trial)
    assert survive(trial, 3, seed=0) > 0
    record_property("kills_survived", 3)


@pytest.mark.slow
@pytest.mark.timeout(7200)  # each kill is some twenty seconds, more on an old machine
@pytest.mark.parametrize("trial", [TRAININGS], indirect=True, ids=["serial and ddp"])
def test_fifty_kills_and_the_whole_study_after_them(
    trial: Trial, record_property: Callable[[str, int], None]
) -> None:
    assert survive(trial, 50, seed=1) > 0
    trial.checkout.run("dvc", "repro")
    runs = statuses(trial.checkout)
    assert "RUNNING" not in {status for _, status in runs}
    assert len({uuid for uuid, _ in runs}) == len(runs)
    record_property("kills_survived", 50)
