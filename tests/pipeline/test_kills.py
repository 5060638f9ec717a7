"""Trainings whose processes are killed at random moments: the next `dvc repro` goes on, and nothing shows."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import yaml
from checkouts import Checkout, copied

from parashot.parsing import Value
from parashot.records import read_result
from parashot.train.records import TrainResult

SETTINGS: dict[str, Value] = {
    "train.episodes": 1200,  # some seconds of training
    "train.validate_every": 100,
    "train.checkpoint_every": 10,
    "loader.workers": 2,
    "tracking.live_seconds": 1,
    # what is measured may be chosen another way the next time
    "model.pairing": "split",
    "train.precision": "fp32",
    "train.compile": "none",
}
TRAININGS = ("train-serial", "train-ddp")
PATIENCE_SECONDS = 300

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are told apart by /proc"),
]

Chooser = Callable[[psutil.Process], list[psutil.Process]]


def stages(dvc: psutil.Process) -> list[psutil.Process]:
    return [each for each in children(dvc) if says(each, "stages.train")]


def ranks(dvc: psutil.Process) -> list[psutil.Process]:
    """What the fork servers of stages have forked."""
    servers = [each for stage in stages(dvc) for each in children(stage) if says(each, "forkserver")]
    return [rank for server in servers for rank in children(server)]


def workers(dvc: psutil.Process) -> list[psutil.Process]:
    """Loader workers: forked by a rank or a stage of one process, so their command line is the same."""
    makers = [(stage, "stages.train") for stage in stages(dvc)] + [
        (rank, "forkserver") for rank in ranks(dvc)
    ]
    return [child for maker, word in makers for child in children(maker) if says(child, word)]


def children(process: psutil.Process) -> list[psutil.Process]:
    """Its children; none where it has just ended."""
    with contextlib.suppress(psutil.Error):
        found: list[psutil.Process] = process.children()
        return found
    return []


def says(process: psutil.Process, word: str) -> bool:
    with contextlib.suppress(psutil.Error):
        return any(word in each for each in process.cmdline())
    return False


def dvc_itself(dvc: psutil.Process) -> list[psutil.Process]:
    return [dvc]


WAYS = (
    (dvc_itself, signal.SIGKILL),
    (stages, signal.SIGINT),  # Ctrl-C: to all of the process group
    (workers, signal.SIGKILL),
    (stages, signal.SIGKILL),
    (ranks, signal.SIGKILL),
    (dvc_itself, signal.SIGTERM),
    (stages, signal.SIGTERM),
)
"""Whom to kill, and by which signal."""


@contextlib.contextmanager
def repro(checkout: Checkout) -> Iterator[psutil.Popen]:
    """Yield a running `dvc repro` of the trainings, in a session of its own; at the end all is killed."""
    dvc = checkout.start("dvc", "repro", *TRAININGS)
    try:
        yield dvc
    finally:
        for each in session(dvc.pid):
            with contextlib.suppress(psutil.Error):
                each.kill()
        dvc.wait()


def session(leader: int) -> list[psutil.Process]:
    """Every living process of a session, orphans too."""
    found = []
    for each in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getsid(each.pid) == leader and each.status() != psutil.STATUS_ZOMBIE:
                found.append(each)
    return found


def has_saved(checkout: Checkout, since: float) -> bool:
    """Whether a training has saved its state since then."""
    for path in (checkout.root / ".scratch").rglob("*.pt"):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime > since:
                return True
    return False


def kill_once(checkout: Checkout, choose: Chooser, sent: signal.Signals, chance: random.Random) -> bool:
    """Start the trainings and kill at a random moment; False where they were done before it came.

    The moment lies soon after a stage began or, more often, soon after a state was saved: how long a stage
    takes to begin depends on the machine. Then everything that was started must end by itself.
    """
    begin, while_training = time.time(), chance.random() < 0.7
    with repro(checkout) as dvc:
        victims: list[psutil.Process] = []
        while not victims:
            while not (choose(dvc) and (has_saved(checkout, begin) if while_training else stages(dvc))):
                if dvc.poll() is not None:
                    assert dvc.returncode == 0
                    return False
                time.sleep(0.02)
            time.sleep(chance.uniform(0, 2 if while_training else 10))
            victims = choose(dvc) if dvc.poll() is None else []  # between two stages there may be none
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if sent is signal.SIGINT:
                os.killpg(dvc.pid, sent)
            else:
                chance.choice(victims).send_signal(sent)
        dvc.wait(timeout=PATIENCE_SECONDS)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while left := session(dvc.pid):
            assert time.monotonic() < deadline, f"{[each.cmdline() for each in left]} live on"
            time.sleep(0.05)
    return True


def forget_trainings(checkout: Checkout) -> None:
    """Let the next `dvc repro` train anew, from the data that are there."""
    lock = yaml.safe_load(checkout.read("dvc.lock"))
    for name in TRAININGS:
        lock["stages"].pop(name, None)
    (checkout.root / "dvc.lock").write_text(yaml.safe_dump(lock, sort_keys=False), encoding="utf-8")
    shutil.rmtree(checkout.root / ".dvc/cache/runs", ignore_errors=True)
    shutil.rmtree(checkout.root / "results/train")


def assert_undisturbed(checkout: Checkout, calm: Checkout) -> int:
    """The trainings have ended as if nothing had been; return how often they were taken up again."""
    resumed = 0
    for name in TRAININGS:
        folder = Path("results/train", name.removeprefix("train-"))
        here, there = checkout.root / folder, calm.root / folder
        for file in ("model.safetensors", "val_episodes.csv"):
            assert (here / file).read_bytes() == (there / file).read_bytes()
        result = read_result(TrainResult, here / "result.json")
        assert (result.seconds is None) == bool(result.resumed)  # no one window of time is its wall time
        resumed += result.resumed
    files = [file for top in ("data", "results", ".scratch") for file in (checkout.root / top).rglob("*")]
    assert [file for file in files if file.suffix in {".tmp", ".old", ".pt"}] == []
    return resumed


def test_killed_trainings_go_on(studied: Checkout, tmp_path: Path) -> None:
    calm = copied(studied, tmp_path / "calm")
    calm.turn(SETTINGS)
    calm.run("dvc", "repro", *TRAININGS)
    checkout, chance, killed, resumed = copied(calm, tmp_path / "killed"), random.Random(0), 0, 0
    forget_trainings(checkout)
    while killed < len(WAYS):
        if kill_once(checkout, *WAYS[killed], chance):
            killed += 1
        else:  # all done before it came
            resumed += assert_undisturbed(checkout, calm)
            forget_trainings(checkout)
    checkout.run("dvc", "repro")
    assert resumed + assert_undisturbed(checkout, calm) > 0
    runs = checkout.query(
        "select value, status from runs join tags using (run_uuid) where key = 'parashot.uuid'"
    )
    assert "RUNNING" not in {status for _, status in runs}
    assert len({uuid for uuid, _ in runs}) == len(runs)
