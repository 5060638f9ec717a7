"""Two hosts that train together: network namespaces with addresses of their own, two ranks each, torchrun.

Needs root and iproute2.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from checkouts import Checkout, copy_project
from tiny_data import SETTINGS

from parashot.records import read_result, write_result
from parashot.train.records import Choices, TrainResult

SECONDS = 240
TURNED = {
    **SETTINGS,
    "train.episodes": 600,
    "train.batchsz": 6,
    "train.validate_every": 100,
    "train.checkpoint_every": 5,
}
STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3 * SECONDS)]


def ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=60).stdout


@dataclass
class Host:
    """A network namespace, and a checkout in it."""

    name: str
    address: str
    checkout: Checkout
    started: list[psutil.Popen] = field(default_factory=list)

    def train(self, *arguments: str, **environment: str) -> None:
        """Start torchrun with two ranks, as it is typed on every host."""
        inside = ("ip", "netns", "exec", self.name, *torchrun("2", *arguments))
        variables = {"PARASHOT_INTERFACE": "eth0", "PARASHOT_TIMEOUT_SECONDS": "60", **environment}
        self.started.append(self.checkout.start(*inside, **STORE, **variables))

    def kill(self) -> None:
        """Kill all processes at once, as when the power fails."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, 9)
        self.started[-1].wait()

    def processes(self) -> list[int]:
        return [int(each) for each in ip("netns", "pids", self.name).split()]

    def saved_states(self) -> list[Path]:
        return list(self.checkout.root.glob(".scratch/*/step-*.pt"))


def torchrun(ranks: str, *arguments: str) -> tuple[str, ...]:
    """The command that trains by DDP."""
    return ("torchrun", "--nproc-per-node", ranks, *arguments, "-m", "stages.train", "ddp")


def prepared(root: Path, packed: Path) -> Checkout:
    """What `stages.train` needs: code, params, packed images, choices."""
    copy_project(root, ("src", "stages", "dvc.yaml", "params.yaml"))
    checkout = Checkout(root)
    checkout.turn(TURNED)
    shutil.copytree(packed, root / "data/packed")
    write_result(root / "results/choices.json", Choices("split", "fp32", "none"))
    return checkout


@pytest.fixture
def hosts(tmp_path: Path, tiny_packed: Path) -> Iterator[tuple[Host, Host]]:
    if shutil.which("ip") is None:
        pytest.skip("iproute2 is not installed: two hosts cannot be made")
    tag, made = f"ps{os.getpid()}", []
    try:
        for number, letter in enumerate("ab", 1):
            address, checkout = f"10.203.77.{number}", prepared(tmp_path / letter, tiny_packed)
            try:
                ip("netns", "add", f"{tag}{letter}")
            except subprocess.CalledProcessError as error:
                pytest.skip(f"network namespaces are not permitted here: {error.stderr.strip()}")
            made.append(Host(f"{tag}{letter}", address, checkout))
        ip("link", "add", f"{tag}x", "type", "veth", "peer", "name", f"{tag}y")
        for host, link in zip(made, (f"{tag}x", f"{tag}y"), strict=True):
            ip("link", "set", link, "netns", host.name, "name", "eth0")
            ip("-n", host.name, "address", "add", f"{host.address}/24", "dev", "eth0")
            for each in ("eth0", "lo"):
                ip("-n", host.name, "link", "set", each, "up")
        yield made[0], made[1]
    finally:
        for host in made:
            if host.started:
                host.kill()
            subprocess.run(["ip", "netns", "delete", host.name], check=False, capture_output=True)


def wait(until: Callable[[], bool], hosts: tuple[Host, Host]) -> None:
    limit = time.monotonic() + SECONDS
    while not until():
        logs = "\n---\n".join(host.checkout.read("log.txt") for host in hosts)
        assert time.monotonic() < limit, logs
        time.sleep(0.02)


def test_a_killed_host_comes_back_and_both_train_as_one(
    hosts: tuple[Host, Host], tmp_path: Path, tiny_packed: Path
) -> None:
    alone = prepared(tmp_path / "alone", tiny_packed)
    reference = alone.start(*torchrun("4", "--standalone"), **STORE)
    assert reference.wait(SECONDS) == 0, alone.read("log.txt")
    first, second = hosts
    # both namespaces share one host name, by which torchrun cannot tell whose address the endpoint is
    conf = "last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=3"
    commands = [
        f"--nnodes 2 --rdzv-backend c10d --rdzv-endpoint {first.address}:29417 --max-restarts 10 "
        f"--local-addr {host.address} --rdzv-conf is_host={int(host is first)},{conf}".split()
        for host in hosts
    ]
    first.train(*commands[0])
    second.train(*commands[1])
    wait(lambda: bool(first.saved_states()), hosts)
    second.kill()
    second.train(*commands[1])
    wait(lambda: None not in [host.started[-1].poll() for host in hosts], hosts)
    assert [host.started[-1].returncode for host in hosts] == [0, 0]
    folder = Path("results/train/ddp")
    (written,) = [root for host in hosts if (root := host.checkout.root / folder).exists()]
    for name in ("model.safetensors", "val_episodes.csv"):
        assert (written / name).read_bytes() == (alone.root / folder / name).read_bytes()
    result = read_result(TrainResult, written / "result.json")
    assert (result.replicas, result.ranks_identical, result.resumed > 0) == (4, True, True)
    for host in hosts:
        assert (host.saved_states(), host.processes()) == ([], [])


def test_a_peer_that_cannot_be_reached_ends_in_one_line(hosts: tuple[Host, Host]) -> None:
    host = hosts[0]
    nowhere = {"PARASHOT_INIT_METHOD": "tcp://10.203.77.9:29500", "PARASHOT_TIMEOUT_SECONDS": "3"}
    host.train("--standalone", "--max-restarts", "0", **nowhere)
    assert host.started[0].wait(SECONDS) != 0
    lines = host.checkout.read("log.txt").splitlines()
    assert [line for line in lines if "did not find the others" in line and "PARASHOT_INIT_METHOD" in line]
    assert [pid for pid in host.processes() if psutil.pid_exists(pid)] == []
