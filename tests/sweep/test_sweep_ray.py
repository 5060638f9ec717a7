"""Sweeps by Ray itself: one machine, and two nodes of which one is lost; every port on the loopback."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest
from tiny_data import SEED, tiny_tree

from parashot.errors import DeviceError
from parashot.sweep import run as sweep_run
from parashot.sweep.cluster import Nodes, connected
from parashot.sweep.grid import grid
from parashot.sweep.run import sweep
from parashot.sweep.trial import Delivery, send
from parashot.tasks.relation import RelationTask
from parashot.train.job import episode_job
from parashot.train.run import train

pytestmark = [
    pytest.mark.slow,  # Ray is not imported here: it reads its environment as it is imported
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install -e '.[sweep]'"),
]


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where Ray's processes keep their files; its path is short, for sockets have their names in it."""
    folder = Path(tempfile.mkdtemp(prefix="sweep-", dir="/tmp"))
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    monkeypatch.setenv("RAY_health_check_period_ms", "1000")  # a lost node is missed sooner
    monkeypatch.setenv("PYTHONPATH", str(Path(sweep_run.__file__).parents[2]))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def listening(me: psutil.Process) -> set[str]:
    """Addresses on which this process and its descendants wait for connections."""
    found = set()
    for process in [me, *me.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            found |= {each.laddr.ip for each in process.net_connections("inet") if each.status == "LISTEN"}
    return {address.removeprefix("::ffff:") for address in found}


def test_this_machine_alone(
    scratch: Path, tiny_packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every run has its result or its reason, nothing listens to others, and nothing stays behind."""
    me = psutil.Process()
    before = {each.pid for each in me.children(recursive=True)}
    heard: set[str] = set()
    points = grid(tiny_tree(), {"seed": [0, 1]})
    fails = grid(tiny_tree({"episode.n_way": 5}), {"seed": [2]})  # of 4 classes

    def told(line: str) -> None:
        heard.update(listening(me))

    outcomes = sweep([*points, *fails], "serial", SEED, tiny_packed, tmp_path / "out", Nodes(), told)
    assert [each.status for each in outcomes] == ["done", "done", "failed"]
    assert outcomes[2].reason
    assert heard == {"127.0.0.1"}
    assert capsys.readouterr().out == ""  # which is the table's
    assert {each.pid for each in me.children(recursive=True)} <= before
    with pytest.raises(DeviceError, match="none of 1 nodes has 4096 CPUs"), connected(Nodes(cpus=4096)):
        pass


@pytest.fixture
def nodes(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head node and another one, with a CPU each, on the loopback; parashot's code travels to them."""
    from ray.cluster_utils import Cluster

    monkeypatch.delenv("PYTHONPATH")
    cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    yield cluster
    cluster.shutdown()


def lose(node: Any, shelf: Path) -> None:
    """Kill a node, and what works for it, as soon as two runs are under way."""
    (info,) = node.all_processes["raylet"]  # the process that stands for the node
    raylet = psutil.Process(info.process.pid)
    while len(list(shelf.glob("run-*"))) < 2:
        time.sleep(0.02)
    for process in [raylet, *raylet.children(recursive=True)]:
        process.kill()


@pytest.mark.usefixtures("one_core")
def test_what_a_lost_node_was_doing_is_done_by_another(
    nodes: Any, scratch: Path, tiny_packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def from_afar(packed: Path, share: Any) -> Delivery:
        return replace(send(packed, share), path=Path("/on/another/machine"))

    monkeypatch.setattr(sweep_run, "send", from_afar)
    shelf = scratch / f"parashot-sweep-{os.getuid()}"
    (other,) = nodes.worker_nodes
    loss = threading.Thread(target=lose, args=(other, shelf), daemon=True)
    loss.start()
    points = grid(tiny_tree({"train.episodes": 300}), {"seed": [0, 1, 2]})
    lines: list[str] = []
    outcomes = sweep(
        points, "serial", SEED, tiny_packed, tmp_path / "out", Nodes(nodes.address), lines.append
    )

    assert not loss.is_alive()
    assert len(list(shelf.glob("run-*"))) == 1  # what the killed run left behind
    assert [(each.status, each.reason) for each in outcomes] == [("done", "")] * 3
    assert len(lines) == 4
    for number, each in enumerate(outcomes):
        alone = tmp_path / f"alone{number}"
        task = RelationTask(each.point.params, tiny_packed, validation_seed=SEED)
        train(replace(episode_job("serial", each.point.params, tiny_packed, alone), task=task))
        assert (each.folder / "val_episodes.csv").read_bytes() == (alone / "val_episodes.csv").read_bytes()
