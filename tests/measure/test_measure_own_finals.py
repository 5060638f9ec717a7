"""The finals of a user's training: the last ways, each in processes of its own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from own_file import own_trainings, way
from small_tasks import alone

from parashot.allocator import why_nothing_is_kept
from parashot.errors import DeviceError
from parashot.parallel.context import Placement
from parashot.questions.own.candidates import renamed
from parashot.questions.own.measure import (
    FINALS_SHARE,
    REFINE_SHARE,
    SEARCH_SHARE,
    Measurement,
    own_parallel,
)
from parashot.questions.own.records import PLAIN, OwnWay
from parashot.questions.own.search import Found
from parashot.questions.ways.measure import time_ways
from parashot.questions.ways.records import SkippedWay, WayBlock

KEPT = "default-keep_memory"
FINALS_END = SEARCH_SHARE + REFINE_SHARE + FINALS_SHARE
THREE = [way(PLAIN), renamed(way(PLAIN), keep_memory=True), way("other")]


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool, list[str]]]:
    """Launches by `time_ways`, which are no real ones: number, whether with variables, ways.

    With a journal, processes that keep memory end in the second launch.
    """
    called: list[tuple[int, bool, list[str]]] = []

    def noted(function: object, placement: Placement, *args: Any) -> list[WayBlock]:
        _, _, ways, _, number, _, journal = args
        called.append((number, bool(placement.variables), [each.way for each in ways]))
        if journal and placement.variables and number == 1:
            raise DeviceError("rank 1 ended with exit code -9")
        return []

    monkeypatch.setattr("parashot.questions.ways.measure.launch_apart", noted)
    return called


@pytest.mark.parametrize("apart", [False, True])
def test_ways_in_processes_of_their_own_come_in_the_order_a_b_b_a(
    apart: bool, launched: list[tuple[int, bool, list[str]]]
) -> None:
    """So that a machine that slows down harms all alike."""
    time_ways(own_trainings(), THREE, alone().placement, own_parallel().bench, "finals", apart=apart)
    alike = [(False, [PLAIN, "other"]), (True, [KEPT])]
    alone_each = [(False, [PLAIN]), (True, [KEPT]), (False, ["other"])]
    groups = alone_each if apart else alike
    assert launched == [*((0, *each) for each in groups), *((1, *each) for each in reversed(groups))]


def test_ways_whose_processes_end_are_left_out_of_the_finals(
    launched: list[tuple[int, bool, list[str]]], tmp_path: Path
) -> None:
    found, now = Found((), (), 0.01, 0.0), time.monotonic()
    measurement = Measurement(own_trainings(), 0.0, now, 100.0, tmp_path, [])
    measurement.finals(found, THREE)
    assert [number for number, _, ways in launched if ways == [KEPT]] == [0, 1]
    assert [number for number, _, ways in launched if ways == [PLAIN]] == [*range(12)]
    assert measurement.failed() == [SkippedWay(KEPT, "rank 1 ended with exit code -9")]


@pytest.mark.parametrize(
    ("seconds", "finalists", "launches", "timed"),
    [(100, 3, 12, 3), (13, 3, 4, 3), (17, 5, 4, 4), (10, 3, 3, 3), (7, 3, 3, 2), (1, 3, 3, 2)],
)
def test_finals_have_as_many_launches_as_there_is_time_for(
    seconds: int, finalists: int, launches: int, timed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A launch of a way takes a second; more launches come before more than four ways."""
    ways = [way(PLAIN), *(way(str(each)) for each in range(1, finalists))]
    assert timed_in_finals(seconds, ways, monkeypatch, tmp_path) == (launches, timed)


def test_processes_that_are_not_forked_take_longer_to_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for seconds, expected in ((25, (4, 3)), (23, (3, 3))):
        assert timed_in_finals(seconds, THREE, monkeypatch, tmp_path) == expected


def timed_in_finals(
    seconds: int, ways: list[OwnWay], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> tuple[int, int]:
    """Launches and ways of finals of so many seconds: of a way 1 s, and 3 s more to import what it needs."""
    clock, called = [0.0], list[tuple[range, int]]()

    def noted(trainings: object, ways: list[OwnWay], *_: object, launches: range, apart: bool) -> None:
        assert apart  # this is a CPU
        called.append((launches, len(ways)))
        clock[0] += len(launches) * sum(4 if each.keep_memory else 1 for each in ways)

    monkeypatch.setattr("parashot.questions.own.measure.time_ways", noted)
    monkeypatch.setattr("parashot.questions.own.measure.monotonic", lambda: clock[0])
    measurement = Measurement(own_trainings(), 0.0, 0.0, seconds / FINALS_END, tmp_path, [])
    measurement.import_seconds = 3.0
    measurement.finals(Found((), (), 0.0, 1.0), ways)
    numbers = [number for each, _ in called for number in each]
    (timed,) = {count for _, count in called}
    assert numbers == [*range(len(numbers))]
    return len(numbers), timed


@pytest.mark.parametrize("name", ["MALLOC_ARENA_MAX", "LD_PRELOAD", "GLIBC_TUNABLES"])
def test_what_the_user_has_set_himself_is_not_compared_with(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "4")
    assert why_nothing_is_kept() == f"{name} is set, so all ways have it"
