"""Ways that keep freed memory: where they run, and what happens where there is too little."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from own_file import way
from small_tasks import alone

from parashot.allocator import why_nothing_is_kept
from parashot.errors import DeviceError
from parashot.parallel.context import Placement
from parashot.questions.own.candidates import renamed
from parashot.questions.own.measure import Measurement, OwnTrainings, own_parallel
from parashot.questions.own.records import PLAIN, OwnWay
from parashot.questions.own.search import Found
from parashot.questions.ways.measure import time_ways
from parashot.questions.ways.records import WayBlock
from parashot.tasks.own import OwnTask


def test_ways_that_keep_freed_memory_have_processes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order A B B A, so that a machine that slows down harms both alike."""
    called: list[tuple[int, bool, list[str]]] = []

    def noted(function: object, placement: Placement, *args: Any) -> list[WayBlock]:
        _, _, ways, _, number, *_ = args
        called.append((number, bool(placement.variables), [each.way for each in ways]))
        return []

    monkeypatch.setattr("parashot.questions.ways.measure.launch_apart", noted)
    ways, parallel = [way(PLAIN), renamed(way(PLAIN), keep_memory=True), way("other")], own_parallel()
    trainings = OwnTrainings(OwnTask(Path("file.py"), 6), parallel)
    time_ways(trainings, ways, alone().placement, parallel.bench, "finals")
    kept, others = (True, ["default-keep_memory"]), (False, [PLAIN, "other"])
    assert called == [(0, *others), (0, *kept), (1, *kept), (1, *others)]


def test_ways_that_keep_memory_which_there_is_not_are_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What else is timed is timed again."""
    timed: list[list[str]] = []

    def full(self: Measurement, ways: list[OwnWay], bench: object, name: str) -> None:
        timed.append([each.way for each in ways])
        (tmp_path / "finals.csv").touch()
        if any(each.keep_memory for each in ways):
            raise DeviceError(said)

    monkeypatch.setattr(Measurement, "_time", full)
    trainings = OwnTrainings(OwnTask(tmp_path / "file.py", 6), replace(own_parallel(), device="cpu"))
    ways, found = [way(PLAIN), renamed(way(PLAIN), keep_memory=True)], Found((), (), 0.1, 1.0)
    said = "rank 1 ended with exit code -9"
    measurement = Measurement(trainings, 0.0, time.monotonic(), 100.0, tmp_path, [])
    measurement.finals(found, ways)
    assert timed == [[PLAIN, "default-keep_memory"], [PLAIN]]
    assert measurement.warnings == [f"keeping freed memory could not be timed ({said})"]


@pytest.mark.parametrize("name", ["MALLOC_ARENA_MAX", "LD_PRELOAD", "GLIBC_TUNABLES"])
def test_what_the_user_has_set_himself_is_not_compared_with(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "4")
    assert why_nothing_is_kept() == f"{name} is set, so all ways have it"
