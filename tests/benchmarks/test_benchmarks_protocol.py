"""Interleaved timing, this checkout's commands, bounds, results and pages."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from benchmarks import check, checkout, loader, step
from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.check import Row
from benchmarks.outcome import Outcome, Table, save, show
from benchmarks.page import PAGE, RESULTS, page
from benchmarks.step import ClockedSteps, Comparison
from benchmarks.turns import Turns, fitting
from benchmarks.workload import Workload
from parashot.errors import DeviceError
from parashot.questions.statistics import Interval


def interval(value: float) -> Interval:
    return Interval(value, 0.9 * value, 1.1 * value)


def make_writing(name: str, journal: Path) -> Callable[[], float]:
    """A block that writes down its turn and its process, and returns the turn; side b has no third."""

    def block() -> float:
        journal.with_name(str(os.getpid())).touch()
        with journal.open("a") as file:
            file.write(name)
        if name == "b" and journal.read_text().count(name) == 3:
            raise ValueError("no disk\nleft")
        return float(len(journal.read_text()))

    return block


def test_sides_take_turns_and_one_that_fails_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork = multiprocessing.get_context("fork")  # there at once; quick runs start sides as they are
    monkeypatch.setattr(multiprocessing, "get_context", lambda kind: fork)
    journal = tmp_path / "journal"
    sides = {each: partial(make_writing, each, journal) for each in "ab"}
    with (
        pytest.raises(DeviceError, match=r"^benchmark side 'b': ValueError: no disk.*left$"),
        Turns(sides) as run,
    ):
        assert run.seconds(1) == {"a": [3.0], "b": [4.0]}  # the first round warms up
        assert journal.read_text() == "abab"
        pids = {each.name for each in tmp_path.iterdir()} - {"journal"}
        assert len(pids - {str(os.getpid())}) == 2  # in processes of their own
        run.seconds(1)


@pytest.mark.parametrize(("per_call", "fewest", "count"), [(0.1, 1, 10), (2.0, 1, 1), (2.0, 4, 4)])
def test_repetitions_fit_the_time(per_call: float, fewest: int, count: int) -> None:
    assert fitting(lambda repetitions: per_call * repetitions, 1.0, fewest) == count


def test_a_block_clocks_enough_steps_and_leaves_the_first_out(monkeypatch: pytest.MonkeyPatch) -> None:
    now, first, taken = [0.0], [True], [0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def take_step() -> None:
        now[0] += 100.0 if first[0] else 0.2
        first[0], taken[0] = False, taken[0] + 1

    block = ClockedSteps(take_step)
    for steps in (1 + 1 + 3, 1 + 3):  # to warm up, at first to see how long one takes, and clocked
        first[0], taken[0] = True, 0
        assert block() == pytest.approx(0.2)
        assert taken[0] == steps


def test_a_command_runs_this_checkout_and_fails_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DVC_EXP_NAME", "MLFLOW_TRACKING_URI", "GIT_DIR"):
        monkeypatch.setenv(name, "elsewhere")
        assert name not in checkout.environment()
    source = checkout.ROOT / "src/parashot/__init__.py"
    program = "import parashot, sys; print(parashot.__file__)"
    assert checkout.run_command("python", "-c", program).strip() == str(source)
    with pytest.raises(DeviceError, match=r"ended with 1: the disk is full$"):
        checkout.run_command("python", "-c", "import sys; sys.exit('Traceback\\nthe disk is full')")
    with pytest.raises(DeviceError, match="no-such-program cannot be started"):
        checkout.run_command("no-such-program")


@pytest.mark.parametrize(
    ("row", "verdict", "short"),
    [
        (Row("a", Interval(3.1, 3.0, 3.2), 3), "holds", False),
        (Row("a", Interval(3.1, 2.9, 3.3), 3), "undecided", True),
        (Row("a", Interval(2.9, 2.8, 2.99), 3), "falls short", True),
        (Row("a", Interval(0.4, 0.3, 0.5), 0.5, least=False), "holds", False),
        (Row("a", Interval(0.4, 0.3, 0.6), 0.5, least=False), "undecided", True),
        (Row("a", Interval(0.6, 0.51, 0.7), 0.5, least=False), "falls short", True),
        (Row("a", interval(3.0), 3, excuse="no units"), "undecided; not asked here: no units", False),
        (Row("a", interval(2.0), 3, excuse="no units"), "falls short; not asked here: no units", False),
        (Row("a", None, 3, excuse="no disk"), "not measured: no disk", True),
    ],
)
def test_a_row_holds_where_its_whole_interval_reaches_the_bound(row: Row, verdict: str, short: bool) -> None:
    assert (row.verdict, row.short) == (verdict, short)


@pytest.mark.parametrize(("value", "status"), [(4.0, 0), (2.0, 1)])
def test_the_command_fails_where_a_bound_falls_short(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: float, status: int
) -> None:
    monkeypatch.setattr(check, "_PARTS", (lambda quick, raw: iter([Row("steps", interval(value), 3)]),))
    assert main(["check", "--to", str(tmp_path / "check.json")]) == status
    assert json.loads((tmp_path / "check.json").read_text())["settings"]["short"] == ["steps"] * status


def test_check_keeps_its_rows_and_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of the committed result, in their order, with what each is held to."""
    blocks, ratios = [1.0] * 3, dict.fromkeys(("study", "study_floats", "copy"), interval(99))

    def compare(workload: Workload, sides: list[str], memory: bool) -> Comparison:
        return Comparison(dict.fromkeys(sides, blocks), dict.fromkeys(sides, 1.0))

    monkeypatch.setattr(loader, "measure_compared", lambda quick: {})
    monkeypatch.setattr(loader, "ratios", lambda seconds: ratios)
    growth = ({"38,400": blocks, "640,000": blocks}, 0)
    monkeypatch.setattr(loader, "measure_growth", lambda images, quick: growth)
    monkeypatch.setattr(step, "compare", compare)
    monkeypatch.setattr(check, "measure_replicas", lambda *_: {"serial": blocks, "ddp": blocks})
    monkeypatch.setattr(check, "help_seconds", lambda: blocks)
    monkeypatch.setattr(check, "precisions", lambda device: ("fp32", "bf16"))
    committed = json.loads((RESULTS / "check.json").read_text())["tables"][0]["rows"]
    rows = check.run(quick=False).tables[0].rows
    assert [(row[0], row[2]) for row in rows] == [(each["bound"], each["wanted"]) for each in committed]


def test_the_page_holds_the_results(tmp_path: Path) -> None:
    table = Table("T", ("bound", "measured", "n"), [("loader", interval(51.5), 1_234), ("step", None, 1)])
    for name in ("pipeline", "coverage", "check"):
        outcome = Outcome(name, [table], seconds=90)
        save(outcome, tmp_path / f"{name}.json")
    assert "51.5 (46.4 to 56.7)" in show(outcome)
    text = page(tmp_path)
    assert text.index("## check") < text.index("## coverage")
    assert "## pipeline" not in text, "a benchmark whose figures few readers compare"
    assert text.count("51.5 (46.4 to 56.7)") == text.count("1,234") == 2


def test_the_committed_pages_are_those_of_the_committed_results() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(RESULTS)
    assert {path.stem.partition("-")[0] for path in RESULTS.glob("*.json")} == set(BENCHMARKS)
