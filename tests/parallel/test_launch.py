"""Processes really start, fail and end as `launch` says."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest
import torch
from torch import distributed as dist

from parashot.errors import DataError, DeviceError
from parashot.parallel.context import Context, Placement, first_ranks, fit_to_batch, place
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
    assert launch(add_up, TWO, 2, 10) == (21, 2, True)


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
