"""Two hosts that train together: network namespaces with addresses of their own, two ranks each, torchrun.

Needs root and iproute2; made and removed by the test.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
import yaml
from tiny_data import SETTINGS

from parashot.recipes import Value, apply
from parashot.records import read_result, write_result
from parashot.train.records import Choices, TrainResult

ROOT = Path(__file__).parents[2]
SECONDS = 240
TURNED: dict[str, Value] = {
    **SETTINGS,
    "train.episodes": 600,
    "train.batchsz": 6,
    "train.validate_every": 100,
    "train.checkpoint_every": 5,
    "parallel.interface": "eth0",
    "parallel.timeout_seconds": 60,
    "tracking.live_seconds": 3600,
}


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


@dataclass
class Host:
    """A network namespace, and a checkout in it."""

    name: str
    address: str
    folder: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def train(self, *arguments: str) -> subprocess.Popen[bytes]:
        """torchrun with two ranks, as it is typed on every host."""
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *arguments]
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("DVC")},
            "PYTHONPATH": f"{self.folder}{os.pathsep}{self.folder / 'src'}",
            "OMP_NUM_THREADS": "1",
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }
        log = (self.folder / f"log-{len(self.started)}").open("wb")
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.name, *launcher, "-m", "stages.train", "ddp"],
            cwd=self.folder,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        self.started.append(process)
        return process

    def kill(self) -> None:
        """All its processes at once, as when the power fails."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, 9)
        self.started[-1].wait()

    def processes(self) -> list[int]:
        return [int(each) for each in run("ip", "netns", "pids", self.name).split()]

    def log(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("log-*")))

    def newest_step(self) -> int:
        files = self.folder.glob(".scratch/*/step-*.pt")
        return max((int(path.stem.split("-")[1]) for path in files), default=0)


def checkout(folder: Path, packed: Path) -> Path:
    """What `stages.train` needs: code, params, packed images, settled choices."""
    for each in ("src", "stages"):
        shutil.copytree(ROOT / each, folder / each, ignore=shutil.ignore_patterns("__pycache__"))
    tree = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    (folder / "params.yaml").write_text(yaml.safe_dump(apply(tree, TURNED)), encoding="utf-8")
    shutil.copytree(packed, folder / "data/packed")
    write_result(folder / "results/choices.json", Choices("split", "fp32", "none"))
    return folder


@pytest.fixture
def hosts(tmp_path: Path, tiny_packed: Path) -> Iterator[tuple[Host, Host]]:
    if shutil.which("ip") is None:
        pytest.skip("iproute2 is not installed: two hosts cannot be made")
    tag = f"ps{os.getpid()}"
    made = [
        Host(f"{tag}{letter}", f"10.203.77.{number}", tmp_path / letter)
        for number, letter in ((1, "a"), (2, "b"))
    ]
    try:
        run("ip", "netns", "add", made[0].name)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces are not permitted here: {error.stderr.strip()}")
    try:
        run("ip", "netns", "add", made[1].name)
        run("ip", "link", "add", f"{tag}x", "type", "veth", "peer", "name", f"{tag}y")
        for host, link in zip(made, (f"{tag}x", f"{tag}y"), strict=True):
            run("ip", "link", "set", link, "netns", host.name, "name", "eth0")
            run("ip", "-n", host.name, "address", "add", f"{host.address}/24", "dev", "eth0")
            for each in ("eth0", "lo"):
                run("ip", "-n", host.name, "link", "set", each, "up")
            checkout(host.folder, tiny_packed)
        yield made[0], made[1]
    finally:
        for host in made:
            for pid in host.processes() if host.started else ():
                with suppress(ProcessLookupError):
                    os.kill(pid, 9)
            subprocess.run(["ip", "netns", "delete", host.name], check=False, capture_output=True)


def together(hosts: tuple[Host, Host], restarts: int) -> dict[str, list[str]]:
    """The command of each host, by its name."""
    first = hosts[0]
    common = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{first.address}:29417"]
    common += ["--max-restarts", str(restarts)]
    settings = "last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=3"
    # both namespaces share one host name, so torchrun cannot tell by it which host the endpoint is
    own = {host.name: f"is_host={int(host is first)},{settings}" for host in hosts}
    return {
        host.name: [*common, "--local-addr", host.address, "--rdzv-conf", own[host.name]] for host in hosts
    }


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, tiny_packed: Path) -> Path:
    """The results of the same training by four ranks on one host."""
    host = checkout(tmp_path_factory.mktemp("alone"), tiny_packed)
    tree = yaml.safe_load((host / "params.yaml").read_text(encoding="utf-8"))
    (host / "params.yaml").write_text(
        yaml.safe_dump(apply(tree, {"parallel.interface": "lo"})), encoding="utf-8"
    )
    environment = {**os.environ, "PYTHONPATH": f"{host}{os.pathsep}{host / 'src'}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    subprocess.run(
        [*command, "-m", "stages.train", "ddp"],
        cwd=host,
        env=environment,
        check=True,
        capture_output=True,
        timeout=SECONDS,
    )
    return host / "results/train/ddp"


def wait(until: Callable[[], bool], hosts: tuple[Host, Host]) -> None:
    limit = time.monotonic() + SECONDS
    while not until():
        assert time.monotonic() < limit, f"{hosts[0].log()}\n---\n{hosts[1].log()}"
        time.sleep(0.02)


def assert_same(hosts: tuple[Host, Host], expected: Path) -> TrainResult:
    """The first rank's host, and it alone, has the results, and they are those of one host."""
    written = [
        host.folder / "results/train/ddp" for host in hosts if (host.folder / "results/train/ddp").exists()
    ]
    assert len(written) == 1
    for name in ("model.pt", "val_episodes.csv"):
        assert (written[0] / name).read_bytes() == (expected / name).read_bytes()
    for host in hosts:
        assert not list(host.folder.glob(".scratch/*/step-*"))
        assert host.processes() == []
    return read_result(TrainResult, written[0] / "result.json")


@pytest.mark.slow
def test_two_hosts_train_as_one(hosts: tuple[Host, Host], alone: Path) -> None:
    commands = together(hosts, restarts=0)
    running = [host.train(*commands[host.name]) for host in hosts]
    for each in running:
        assert each.wait(SECONDS) == 0, f"{hosts[0].log()}\n---\n{hosts[1].log()}"
    result = assert_same(hosts, alone)
    assert (result.replicas, result.resumed) == (4, 0)
    assert result.ranks_identical


@pytest.mark.parametrize(
    ("times", "seed"), [(1, 0), pytest.param(5, 1, marks=pytest.mark.slow)], ids=["1 kill", "5 kills"]
)
def test_a_killed_host_comes_back_and_nothing_has_changed(
    hosts: tuple[Host, Host],
    alone: Path,
    times: int,
    seed: int,
    record_property: Callable[[str, int], None],
) -> None:
    chance, commands = random.Random(seed), together(hosts, restarts=10)
    running = [host.train(*commands[host.name]) for host in hosts]
    reached = 0
    for _ in range(times):
        wait(lambda: hosts[0].newest_step() > reached, hosts)  # noqa: B023
        time.sleep(chance.uniform(0, 0.3))
        hosts[1].kill()
        reached = hosts[0].newest_step()
        running[1] = hosts[1].train(*commands[hosts[1].name])
    for each in running:
        assert each.wait(SECONDS) == 0, f"{hosts[0].log()}\n---\n{hosts[1].log()}"
    result = assert_same(hosts, alone)
    assert result.resumed >= times
    record_property("kills_survived", times)


def test_a_peer_that_cannot_be_reached_ends_in_one_line(hosts: tuple[Host, Host]) -> None:
    """No other host is there: the ranks give up after their timeout, each with one line."""
    host = hosts[0]
    tree = yaml.safe_load((host.folder / "params.yaml").read_text(encoding="utf-8"))
    turned = apply(tree, {"parallel.init_method": "tcp://10.203.77.9:29500", "parallel.timeout_seconds": 3})
    (host.folder / "params.yaml").write_text(yaml.safe_dump(turned), encoding="utf-8")
    process = host.train("--standalone", "--max-restarts", "0")
    assert process.wait(SECONDS) != 0
    lines = [line for line in host.log().splitlines() if "did not find the others" in line]
    assert len(lines) >= 1, host.log()
    assert all("parallel.init_method" in line for line in lines)
    assert [psutil.pid_exists(pid) for pid in host.processes()] == []
