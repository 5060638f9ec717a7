"""What a node has of its own: the data, cores, and the same code; no Ray needed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parashot.data.manifest import verify
from parashot.errors import DataError
from parashot.sweep.cores import own_cores
from parashot.sweep.delivery import Bytes, Delivery, receive, send


@pytest.fixture
def sent(tiny_packed: Path, tmp_path: Path) -> Delivery:
    """A folder of another machine, as far as this one can tell."""
    away = tmp_path / "away"
    shutil.copytree(tiny_packed, away)
    delivery = send(away, np.copy)
    shutil.rmtree(away)
    return delivery


def nothing(shared: Any) -> Bytes:
    raise AssertionError("fetched")


def test_the_senders_own_folder_is_used_where_it_is_seen(tiny_packed: Path, tmp_path: Path) -> None:
    for share in (None, np.copy):
        assert receive(send(tiny_packed, share), tmp_path, nothing) == tiny_packed
    assert list(tmp_path.iterdir()) == []


def test_elsewhere_the_files_are_written_once(sent: Delivery, tmp_path: Path) -> None:
    here = receive(sent, tmp_path, lambda shared: shared)
    verify(here)
    assert receive(sent, tmp_path, nothing) == here


def test_a_folder_that_has_changed_is_not_the_senders(sent: Delivery, tmp_path: Path) -> None:
    sent.path.mkdir()
    (sent.path / "manifest.json").write_text("{}")
    assert receive(sent, tmp_path, lambda shared: shared) != sent.path


def test_damage_on_the_way_is_seen_and_leaves_nothing(sent: Delivery, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="damaged"):
        receive(sent, tmp_path, lambda shared: shared[:-1] if len(shared) > 5000 else shared)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_one_machine_needs_no_delivery(tiny_packed: Path, tmp_path: Path) -> None:
    away = tmp_path / "away"
    shutil.copytree(tiny_packed, away)
    delivery = send(away, None)
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
        assert os.sched_getaffinity(0) == {0, 1, 2}


def test_where_too_few_are_free_they_are_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, {0, 1})
    with own_cores(tmp_path, 1):
        pretend(monkeypatch, {0, 1})
        with own_cores(tmp_path, 2):
            assert os.sched_getaffinity(0) == {0, 1}
        with own_cores(tmp_path, 3):
            assert os.sched_getaffinity(0) == {0, 1}
