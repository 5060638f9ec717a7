"""What a node has of its own: the data, and cores. No Ray needed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parashot.errors import DataError
from parashot.sweep.trial import Bytes, Delivery, own_cores, receive, send


def nothing(shared: Any) -> Bytes:
    raise AssertionError("fetched")


def test_elsewhere_the_files_are_written_once(tiny_packed: Path, tmp_path: Path) -> None:
    away = Path(shutil.copytree(tiny_packed, tmp_path / "away"))
    sent = send(away, np.copy)
    (away / "manifest.json").write_text("{}")  # changed since
    here = receive(sent, tmp_path, lambda shared: shared)
    for file in tiny_packed.iterdir():
        assert (here / file.name).read_bytes() == file.read_bytes()
    assert receive(sent, tmp_path, nothing) == here


def test_one_machine_needs_no_delivery(tiny_packed: Path, tmp_path: Path) -> None:
    away = Path(shutil.copytree(tiny_packed, tmp_path / "away"))
    delivery: Delivery = send(away, None)
    assert delivery.files == {}
    shutil.rmtree(away)
    with pytest.raises(DataError, match="gone or changed since the sweep began"):
        receive(delivery, tmp_path, nothing)


def pretend(monkeypatch: pytest.MonkeyPatch, cores: set[int]) -> Callable[[], set[int]]:
    """A machine of these cores; returns what this process may use of them."""
    mine = set(cores)

    def keep(pid: int, chosen: list[int]) -> None:
        mine.clear()
        mine.update(chosen)

    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(mine))
    monkeypatch.setattr(os, "sched_setaffinity", keep)
    return lambda: set(mine)


def test_runs_at_the_same_time_have_different_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = pretend(monkeypatch, {0, 1, 2})
    with own_cores(tmp_path, 2):
        assert mine() == {0, 1}
        pretend(monkeypatch, {0, 1, 2})  # another process
        with own_cores(tmp_path, 1):
            assert os.sched_getaffinity(0) == {2}
        with own_cores(tmp_path, 2):  # too few are free
            assert os.sched_getaffinity(0) == {0, 2}
        assert os.sched_getaffinity(0) == {0, 1, 2}
