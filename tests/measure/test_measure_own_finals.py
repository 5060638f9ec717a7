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
from parashot.questions.own import measure
from parashot.questions.own.candidates import renamed
from parashot.questions.own.records import PLAIN, OwnWay
from parashot.questions.own.search import Found
from parashot.questions.ways.measure import order_of_launch, time_ways
from parashot.questions.ways.records import SkippedWay, WayBlock

KEPT = "default-keep_memory"
FINALS_END = measure.SEARCH_SHARE + measure.REFINE_SHARE + measure.FINALS_SHARE
THREE = [way(PLAIN), renamed(way(PLAIN), keep_memory=True), way("other")]
FORKED = [way(PLAIN), *(way(str(each)) for each in range(1, 5))]


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool, list[str]]]:
    """Launches by `time_ways`, which are no real ones: number, whether with variables, ways.

    With a journal, processes that keep memory end in the second launch.
    """
    called: list[tuple[int, bool, list[str]]] = []

    def noted(function: object, placement: Placement, *args: Any) -> list[WayBlock]:
        _, _, ways, _, number, _, journal, among, *_ = args
        assert {each.way for each in ways} <= {each.way for each in among}
        called.append((number, bool(placement.variables), [each.way for each in ways]))
        if journal and placement.variables and number == 1:
            raise DeviceError("rank 1 ended with exit code -9")
        return []

    monkeypatch.setattr("parashot.questions.ways.measure.launch_apart", noted)
    return called


@pytest.mark.parametrize("steps_apart", [0, 3])
def test_ways_in_processes_of_their_own_come_in_the_order_a_b_b_a(
    steps_apart: int, launched: list[tuple[int, bool, list[str]]]
) -> None:
    """So that a machine that slows down harms all alike."""
    bench = measure.own_parallel().bench
    time_ways(own_trainings(), THREE, alone().placement, bench, "finals", steps_apart=steps_apart)
    alike = [(False, [PLAIN, "other"]), (True, [KEPT])]
    alone_each = [(False, [PLAIN]), (True, [KEPT]), (False, ["other"])]
    groups = alone_each if steps_apart else alike
    assert launched == [*((0, *each) for each in groups), *((1, *each) for each in reversed(groups))]


def test_another_way_is_the_first_in_every_other_launch() -> None:
    orders = ["".join(order_of_launch("abc", number)) for number in range(7)]
    assert orders == ["abc", "cba", "bca", "acb", "cab", "bac", "abc"]


def test_ways_whose_processes_end_are_left_out_of_the_finals(
    launched: list[tuple[int, bool, list[str]]], tmp_path: Path
) -> None:
    found, now = Found((), (), 0.01, 0.0), time.monotonic()
    measurement = measure.Measurement(own_trainings(), 0.0, now, 100.0, tmp_path, [])
    measurement.finals(found, THREE)
    assert [number for number, _, ways in launched if ways == [KEPT]] == [0, 1]
    assert [number for number, _, ways in launched if ways == [PLAIN]] == [*range(12)]
    assert measurement.failed() == [SkippedWay(KEPT, "rank 1 ended with exit code -9")]


LAUNCHES_AND_WAYS: list[tuple[list[OwnWay], dict[int, tuple[int, int]]]] = [
    (FORKED[:3], {100: (12, 3), 13: (4, 3), 10: (3, 3), 7: (3, 2), 1: (3, 2)}),
    (FORKED, {17: (4, 4)}),  # more launches come before more than four ways
    (THREE, {25: (4, 3), 23: (3, 3)}),
]


@pytest.mark.parametrize(("ways", "by_seconds"), LAUNCHES_AND_WAYS)
def test_finals_have_as_many_launches_as_there_is_time_for(
    ways: list[OwnWay], by_seconds: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A launch of a way takes 1 s, and 3 s more to import where it is not forked."""
    clock, called = [0.0], list[tuple[range, int]]()

    def noted(trainings: object, ways: list[OwnWay], *_: object, launches: range, steps_apart: int) -> None:
        assert steps_apart  # this is a CPU
        called.append((launches, len(ways)))
        clock[0] += len(launches) * sum(4 if each.keep_memory else 1 for each in ways)

    monkeypatch.setattr(measure, "time_ways", noted)
    monkeypatch.setattr(measure, "monotonic", lambda: clock[0])
    for seconds, (launches, timed) in by_seconds.items():
        clock[0], called[:] = 0.0, []
        measurement = measure.Measurement(own_trainings(), 0.0, 0.0, seconds / FINALS_END, tmp_path, [])
        measurement.import_seconds = 3.0
        measurement.finals(Found((), (), 0.0, 1.0), ways)
        assert [number for each, _ in called for number in each] == [*range(launches)]
        assert {count for _, count in called} == {timed}


@pytest.mark.parametrize("name", ["MALLOC_ARENA_MAX", "LD_PRELOAD", "GLIBC_TUNABLES"])
def test_what_the_user_has_set_himself_is_not_compared_with(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "4")
    assert why_nothing_is_kept() == f"{name} is set, so all ways have it"
