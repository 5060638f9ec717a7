"""Processes really start, fail and end as `launch` says."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
import torch
from parashot.parallel.meeting import launch_folder, loopback
from torch import distributed as dist

from parashot.errors import DataError, DeviceError
from parashot.parallel.context import (
    Context,
    Meeting,
    Placement,
    choose_interface,
    first_ranks,
    fit_to_batch,
    place,
)
from parashot.parallel.launch import launch
from parashot.params import ParallelParams, load_params

TWO = Placement("cpu", 2, 1, 2)


def parallel(**changes: object) -> ParallelParams:
    settings = load_params(Path(__file__).parents[2] / "params.yaml").parallel
    for key, value in changes.items():
        object.__setattr__(settings, key, value)
    return settings


def add_up(context: Context, value: int) -> tuple[int, int, bool]:
    total = torch.tensor(value + context.rank)
    dist.all_reduce(total)
    inner = first_ranks(context, 1)
    return int(total), context.ranks, inner is not None and inner.ranks == 1


def fail_on_second(context: Context, folder: Path) -> None:
    (folder / str(context.rank)).write_text(str(os.getpid()))
    if context.rank == 1:
        raise DataError("images.tar: cut short; run `dvc repro download`")
    dist.barrier()


def test_ranks_work_together_and_the_first_one_answers() -> None:
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(each) for each in signals]
    assert launch(add_up, TWO, 2, 10) == (21, 2, True)
    assert [signal.getsignal(each) for each in signals] == before


def test_a_failing_rank_ends_all_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(DeviceError) as error:
        launch(fail_on_second, TWO, 2, tmp_path)
    assert str(error.value) == "images.tar: cut short; run `dvc repro download`"
    pids = [int(path.read_text()) for path in tmp_path.iterdir()]
    assert len(pids) == 2
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_one_process_is_this_one() -> None:
    assert launch(lambda context: (os.getpid(), context.ranks), Placement("cpu", 1, 1, 1), 1) == (
        os.getpid(),
        1,
    )


def test_replicas_share_the_cores_evenly() -> None:
    placement = place(parallel(device="cpu", replicas=2))
    assert placement.threads_per_replica == max(1, placement.cores // 2)


def test_a_step_of_few_episodes_uses_few_replicas() -> None:
    assert fit_to_batch(Placement("cpu", 4, 2, 8), 3) == Placement("cpu", 3, 2, 8)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_cuda_without_a_device_is_refused_in_one_line() -> None:
    with pytest.raises(DeviceError, match=r"parallel\.device: cuda.*set it to cpu or auto"):
        place(parallel(device="cuda"))


# --- who could connect ------------------------------------------------------------------------------------


def addresses_listening(context: Context) -> set[str]:
    """Of the launcher and all ranks, while every kind of group is open and has spoken."""
    control = dist.new_group(backend="gloo")
    dist.all_reduce(torch.ones(1))
    dist.barrier(group=control)
    found: list[set[str]] = [set()] * context.ranks
    dist.all_gather_object(found, {*listening(os.getpid()), *listening(os.getppid())})
    return set.union(*found)


def listening(pid: int) -> set[str]:
    found = psutil.Process(pid).net_connections("inet")
    return {each.laddr.ip for each in found if each.status == psutil.CONN_LISTEN}


def test_nothing_of_ranks_on_one_host_listens_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("GLOO", "NCCL"):
        monkeypatch.delenv(f"{library}_SOCKET_IFNAME", raising=False)
    assert launch(addresses_listening, TWO, 2) == {"127.0.0.1"}


@pytest.mark.parametrize(
    ("named", "ranks_here", "chosen"),
    [(None, 4, loopback()), (None, 2, None), ("eth7", 4, "eth7"), ("eth7", 2, "eth7")],
    ids=["one host", "several hosts", "named for one host", "named for several hosts"],
)
def test_ranks_of_several_hosts_speak_where_they_are_told(
    monkeypatch: pytest.MonkeyPatch, named: str | None, ranks_here: int, chosen: str | None
) -> None:
    for library in ("GLOO", "NCCL"):
        monkeypatch.setenv(f"{library}_SOCKET_IFNAME", "of this host")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    choose_interface(Context(0, 4, 0, ranks_here, Placement("cpu", 4, 1, 2, Meeting(interface=named))))
    assert os.environ.get("GLOO_SOCKET_IFNAME") == chosen
    assert os.environ["NCCL_SOCKET_IFNAME"] == "of this host"  # what a host says for itself comes first


# --- what killed launchers leave --------------------------------------------------------------------------

KILLED = """
import os, signal
from parashot.parallel.meeting import launch_folder, loopback

with launch_folder() as folder:
    print(folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_launcher_left_goes_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    foreign = tmp_path / "parashot-ranks-something"
    foreign.mkdir()
    elsewhere = killed_launcher()
    held = os.open(elsewhere, os.O_RDONLY)  # as by a process that this one cannot see
    fcntl.flock(held, fcntl.LOCK_EX)
    left = killed_launcher()
    assert set(tmp_path.iterdir()) == {left, elsewhere, foreign}
    with launch_folder() as mine, launch_folder() as other:
        assert set(tmp_path.iterdir()) == {mine, other, elsewhere, foreign}
    os.close(held)
    with launch_folder():
        pass
    assert list(tmp_path.iterdir()) == [foreign]


def killed_launcher() -> Path:
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return Path(done.stdout.strip())
