"""Sweeps by Ray itself: two nodes, one of which is lost; every port on the loopback."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
from tiny_data import tiny_tree

from parashot.errors import DeviceError
from parashot.sweep import run as sweep_run
from parashot.sweep.delivery import Delivery, send
from parashot.sweep.engine import Failure, Nodes, engine
from parashot.sweep.grid import grid
from parashot.sweep.run import sweep
from parashot.train.job import Job
from parashot.train.run import train

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install -e '.[sweep]'"),
]


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where Ray's processes keep their files; its path is short, for sockets have their names in it."""
    folder = Path(tempfile.mkdtemp(prefix="sweep-", dir="/tmp"))
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    code = [Path(sweep_run.__file__).parents[2], *Path(__file__).parents[:2]]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, code)))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


# --- this machine ---------------------------------------------------------------------------------------


def double(number: int) -> int:
    if number == 1:
        raise ValueError("one of\n them")
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


class Strange:
    """What no node can make anything of."""

    def __reduce__(self) -> tuple[Any, ...]:
        return __import__, ("a_package_that_only_one_machine_has",)


def listening(me: psutil.Process) -> set[str]:
    """Addresses on which this process and its descendants wait for connections."""
    found = set()
    for process in [me, *me.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            found |= {each.laddr.ip for each in process.net_connections("inet") if each.status == "LISTEN"}
    return {address.removeprefix("::ffff:") for address in found}


def test_this_machine_alone(scratch: Path) -> None:
    """Every call has its answer or its reason, nothing listens to others, and nothing stays behind."""
    me = psutil.Process()
    before = {each.pid for each in me.children(recursive=True)}
    with engine(Nodes(retries=1)) as connection:
        answers = dict(connection.call_all(double, range(4)))
        assert listening(me) == {"127.0.0.1"}
        ((_, unread),) = connection.call_all(double, [cast("int", Strange())])
    assert (answers[0], answers[3]) == (0, 6)
    assert unread == Failure("System error: No module named 'a_package_that_only_one_machine_has'")
    assert answers[1] == Failure("ValueError: one of them")
    assert answers[2] == Failure("lost with its process or node, 1 retries included (WorkerCrashedError)")
    assert {each.pid for each in me.children(recursive=True)} <= before


def test_more_than_any_node_has_is_refused(scratch: Path) -> None:
    with (
        engine(Nodes(cpus=4096)) as connection,
        pytest.raises(DeviceError, match="none of 1 nodes has 4096 CPUs"),
    ):
        next(connection.call_all(double, [0]))


# --- a cluster --------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head node and another one, with a CPU each, on the loopback."""
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    yield cluster
    cluster.shutdown()


def raylet(node: Any) -> psutil.Process:
    """The process that stands for a node; those that work for it are its children."""
    (info,) = node.all_processes["raylet"]
    return psutil.Process(info.process.pid)


def is_training(node: psutil.Process) -> bool:
    return any("ray::_call" in " ".join(each.cmdline()) for each in node.children(recursive=True))


class Loss(threading.Thread):
    """Kills a node as soon as two runs are under way, one of them there."""

    def __init__(self, node: Any, shelf: Path) -> None:
        super().__init__(daemon=True)
        self.node, self.shelf = raylet(node), shelf
        self.struck = False

    def run(self) -> None:
        while not (len(list(self.shelf.glob("run-*"))) == 2 and is_training(self.node)):
            time.sleep(0.02)
        everyone = [self.node, *self.node.children(recursive=True)]
        for process in everyone:
            process.send_signal(signal.SIGKILL)
        self.struck = True


@pytest.mark.usefixtures("one_core")
def test_what_a_lost_node_was_doing_is_done_by_another(
    cluster: Any, scratch: Path, tiny_packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def from_afar(packed: Path, share: Any) -> Delivery:
        return replace(send(packed, share), path=Path("/on/another/machine"))

    monkeypatch.setattr(sweep_run, "send", from_afar)
    shelf = scratch / f"parashot-sweep-{os.getuid()}"
    (other,) = cluster.worker_nodes
    loss = Loss(other, shelf)
    loss.start()
    points = grid(tiny_tree({"train.episodes": 300}), {"seed": [0, 1], "train.batchsz": [2, 3]})
    lines: list[str] = []
    outcomes = sweep(points, "serial", tiny_packed, tmp_path / "out", Nodes(cluster.address), lines.append)

    assert loss.struck
    assert len(list(shelf.glob("run-*"))) == 1  # what the killed run left behind
    assert [(each.status, each.reason) for each in outcomes] == [("done", "")] * 4
    assert len(lines) == 5
    for number, each in enumerate(outcomes):
        alone = tmp_path / f"alone{number}"
        train(Job("serial", each.point.params, tiny_packed, alone))
        for name in ("model.pt", "val_episodes.csv"):
            assert (each.folder / name).read_bytes() == (alone / name).read_bytes()
