"""Processes really start, fail and end as `launch` says."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch
from small_tasks import alone
from tiny_data import tiny_params
from torch import distributed as dist

from parashot.allocator import as_environment, why_nothing_is_kept
from parashot.errors import DataError, DeviceError, PeerError
from parashot.parallel.context import (
    Context,
    Placement,
    Rendezvous,
    choose_interface,
    cpu_replicas,
    resolve_placement,
)
from parashot.parallel.launch import launch, launch_apart, lost_peers_named
from stages.common import stage

TWO = Placement("cpu", 2, 1, 2)
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def together(context: Context, value: int) -> tuple[int, bool, set[str]]:
    """A sum over ranks, whether the main one can be a group, and the addresses that listen meanwhile."""
    total = torch.tensor(value + context.rank)
    dist.all_reduce(total)
    context.wait_for_all()
    inner = context.first_ranks(1)
    found: list[set[str]] = [set()] * context.world_size
    dist.all_gather_object(found, {*listening(os.getpid()), *listening(os.getppid())})
    return int(total), inner is not None and inner.world_size == 1, set.union(*found)


def listening(pid: int) -> set[str]:
    connections = psutil.Process(pid).net_connections("inet")
    return {each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN}


def attempts(folder: Path, context: Context) -> int:
    """Note an attempt of this rank, wait for the others, and return its number."""
    number = len(list(folder.glob(f"{context.rank}-*"))) + 1
    (folder / f"{context.rank}-{number}").write_text(str(os.getpid()))
    dist.barrier()
    return number


def fail_on_second(context: Context, folder: Path) -> None:
    attempts(folder, context)
    if context.rank == 1:
        raise DataError("images.tar: cut short; run `dvc repro download`")
    dist.barrier()


def end_on_second(context: Context) -> None:
    if context.rank == 1:
        sys.exit(0)
    dist.barrier()


def lose_a_peer_once(context: Context, folder: Path, how: str) -> tuple[int, bool, set[str]]:
    if attempts(folder, context) == 1 and context.rank == 1:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        raise PeerError("rank 0 does not answer")
    return together(context, 10)


def assert_all_ended(folder: Path, count: int) -> None:
    pids = [int(path.read_text()) for path in folder.iterdir()]
    assert len(pids) == count
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_an_error_ends_all_in_one_line_and_is_not_tried_again(tmp_path: Path) -> None:
    with pytest.raises(DeviceError) as error:
        launch(fail_on_second, TWO.with_rendezvous(max_restarts=1), 2, tmp_path)
    assert str(error.value) == "images.tar: cut short; run `dvc repro download`"
    assert_all_ended(tmp_path, 2)


def test_a_rank_that_ends_the_program_has_not_succeeded() -> None:
    with pytest.raises(DeviceError, match=r"^a rank ends by exit\(0\); raise an error instead$"):
        launch(end_on_second, TWO, 2)


@pytest.mark.parametrize("how", ["killed", pytest.param("PeerError", marks=pytest.mark.slow)])
def test_a_lost_rank_starts_all_again_which_work_together_unseen_by_other_hosts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    for library in ("GLOO", "NCCL"):
        monkeypatch.delenv(f"{library}_SOCKET_IFNAME", raising=False)
    before = [signal.getsignal(each) for each in SIGNALS]
    once_again = TWO.with_rendezvous(max_restarts=1)
    assert launch(lose_a_peer_once, once_again, 2, tmp_path, how) == (21, True, {"127.0.0.1"})
    assert [signal.getsignal(each) for each in SIGNALS] == before
    assert_all_ended(tmp_path, 4)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("killed", "rank "),
        pytest.param("stopped", "rank 0 lost a peer: .*PARASHOT_TIMEOUT_SECONDS 8", marks=pytest.mark.slow),
    ],
)
def test_a_rank_lost_once_too_often_ends_all_in_one_line(how: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=f"^{said}"):
        launch(lose_a_peer_once, TWO.with_rendezvous(max_restarts=0, timeout_seconds=8), 2, tmp_path, how)
    assert_all_ended(tmp_path, 2)


def freed_and_kept(context: Context) -> tuple[int, int]:
    """This process, and the bytes that it still holds of 300 MB that are freed, 30 MB each."""
    before, pid = psutil.Process().memory_info().rss, os.getpid()
    blocks = [torch.ones(7_500_000) for _ in range(10)]
    del blocks
    return pid, psutil.Process().memory_info().rss - before


def malloc_variables() -> dict[str, str]:
    """Variables of the environment that the allocator reads."""
    return {name: value for name, value in os.environ.items() if name.startswith("MALLOC_")}


@pytest.mark.skipif(why_nothing_is_kept() != "", reason=f"freed memory: {why_nothing_is_kept()}")
@pytest.mark.parametrize("how", ["", "by itself", "by variables"])
def test_a_process_apart_keeps_freed_memory_only_where_it_is_told_to(how: str) -> None:
    variables = tuple(as_environment().items()) if how == "by variables" else ()
    before, lone = malloc_variables(), TWO.on_all_cores()
    placement = dataclasses.replace(lone, keep_memory=how == "by itself", variables=variables)
    found = launch_apart(freed_and_kept, placement, 1)
    assert found is not None and found[0] != os.getpid()
    assert (found[1] > 150_000_000) == bool(how) and malloc_variables() == before


def test_a_message_that_does_not_arrive_is_a_lost_peer() -> None:
    two = Context(1, 2, 1, 2, TWO)
    said = r"^rank 1 lost a peer: .*PARASHOT_TIMEOUT_SECONDS 600 .*reset\)$"
    with pytest.raises(PeerError, match=said), lost_peers_named(two):
        raise RuntimeError("[gloo/transport/tcp/pair.cc:547]\n Connection reset")
    for context, said in ((two, "shapes do not match"), (alone(), "Connection reset")):
        with pytest.raises(RuntimeError, match=said), lost_peers_named(context):
            raise RuntimeError(said)
    with pytest.raises(DeviceError, match=r"^NCCL does not work here .*--shm-size$"), lost_peers_named(two):
        raise dist.DistBackendError(
            "NCCL error in: ProcessGroupNCCL.cpp:77, unhandled system error, NCCL 2.27"
        )
    with pytest.raises(PeerError, match="rank 1 lost a peer"), lost_peers_named(two):
        raise dist.DistBackendError("NCCL: unhandled system error, connection closed by remote peer")


SERVER_STARTED_EARLY = """
import sys
from parashot.lifetime import fork_server
from parashot.parallel.server import start_early

def check():
    sys.exit("wave" not in sys.modules)

if __name__ == "__main__":
    start_early("wave")
    assert not {"torch", "wave"} & sys.modules.keys()
    process = fork_server().Process(target=check)
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""


def test_a_server_imports_what_its_maker_has_not(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SERVER_STARTED_EARLY, encoding="utf-8")
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, check=True)


def test_replicas_share_the_cores_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    placement = resolve_placement(tiny_params().parallel)
    assert placement.replicas == 2
    assert placement.threads_per_replica == max(1, placement.cores // 2)
    assert placement.on_all_cores().threads_per_replica == placement.cores
    found = {cores: cpu_replicas(cores) for cores in (1, 2, 3, 5, 6, 7, 10, 16)}
    assert found == {1: 1, 2: 2, 3: 3, 5: 4, 6: 3, 7: 3, 10: 2, 16: 4}  # few cores are left over
    four = Placement("cpu", 4, 2, 8)
    assert four.for_batch(3) == Placement("cpu", 3, 2, 8)  # a step of few items uses few
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR"):
        monkeypatch.setenv(name, "4")
    assert four.for_batch(3) == four  # torchrun's ranks are there already


def test_what_this_machine_cannot_do_is_refused_in_one_line() -> None:
    with pytest.raises(DeviceError, match=r"parallel\.backend: nccl works on GPUs"):
        resolve_placement(tiny_params({"parallel.backend": "nccl"}).parallel)
    if not torch.cuda.is_available():
        with pytest.raises(DeviceError, match=r"parallel\.device: cuda.*set it to cpu or auto"):
            resolve_placement(tiny_params({"parallel.device": "cuda"}).parallel)


def test_the_environment_says_how_ranks_find_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"PARASHOT_{each}" for each in ("INIT_METHOD", "TIMEOUT_SECONDS", "INTERFACE", "MAX_RESTARTS")]
    for name in names:
        monkeypatch.delenv(name, raising=False)
    assert Rendezvous.from_environment("gloo") == Rendezvous()
    assert Rendezvous.restarts_from_environment() == 3
    for name, value in zip(names, ("tcp://node-1:29500", "8.5", "eth0", "0"), strict=True):
        monkeypatch.setenv(name, value)
    expected = Rendezvous("gloo", "tcp://node-1:29500", 8.5, "eth0")
    assert resolve_placement(tiny_params({"parallel.backend": "gloo"}).parallel).rendezvous == expected
    assert Rendezvous.restarts_from_environment() == 0


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("INIT_METHOD", "tcp://node-1", "set env://, tcp://HOST:PORT or file:///PATH"),
        ("TIMEOUT_SECONDS", "ten", "set a number from 1 to 1e+06"),
        ("TIMEOUT_SECONDS", "inf", "set a number from 1 to 1e+06"),
        ("MAX_RESTARTS", "-1", "set a number from 0 to 1e+06"),
    ],
)
def test_settings_that_mean_nothing_are_one_line(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, remedy: str
) -> None:
    monkeypatch.setenv(f"PARASHOT_{name}", value)
    with pytest.raises(DeviceError, match=rf"^PARASHOT_{name}: '{value}' .*{re.escape(remedy)}$"):
        Rendezvous.from_environment("gloo")
        Rendezvous.restarts_from_environment()


@pytest.mark.parametrize(
    ("named", "ranks_here", "chosen"), [(None, 4, "lo"), (None, 2, None), ("eth7", 2, "eth7")]
)
def test_ranks_of_several_hosts_speak_where_they_are_told(
    monkeypatch: pytest.MonkeyPatch, named: str | None, ranks_here: int, chosen: str | None
) -> None:
    for library in ("GLOO", "NCCL"):
        monkeypatch.setenv(f"{library}_SOCKET_IFNAME", "of this host")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    choose_interface(Context(0, 4, 0, ranks_here, Placement("cpu", 4, 1, 2, Rendezvous(interface=named))))
    assert os.environ.get("GLOO_SOCKET_IFNAME") == chosen
    assert os.environ["NCCL_SOCKET_IFNAME"] == "of this host"  # what a host says for itself comes first


def test_stages_that_start_their_own_processes_refuse_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = list[bool]()
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR"):
        monkeypatch.setenv(name, "1")
    with pytest.raises(SystemExit, match=r"error: torchrun starts stages\.train alone"):
        stage(lambda: begun.append(True))
    assert begun == []
