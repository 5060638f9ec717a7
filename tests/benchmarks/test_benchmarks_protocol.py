"""Interleaved timing, probes, results and pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import check, checkout, turns
from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.check import Row
from benchmarks.outcome import Outcome, Table, save, show
from benchmarks.page import BEGIN, END, PAGE, README, RESULTS, draw_leaks, page, with_bounds
from benchmarks.probes import Probe, bytes_said, in_turn, listing, seconds_per_call
from benchmarks.step import ClockedSteps
from benchmarks.turns import fitting
from parashot.errors import DeviceError
from parashot.questions.statistics import Interval


def interval(value: float) -> Interval:
    return Interval(value, 0.9 * value, 1.1 * value)


# --- rounds -------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """A clock that only the measured work moves: item 0 is its time."""
    now = [0.0]
    monkeypatch.setattr(turns.time, "perf_counter", lambda: now[0])
    yield now


def test_probes_take_turns_and_a_first_round_warms_up() -> None:
    order: list[str] = []

    def measure(name: str) -> float:
        order.append(name)
        return float(len(order))

    probes = [Probe("a", "s", lambda: measure("a")), Probe("b", "s", lambda: measure("b"))]
    measured = in_turn(probes, quick=True)
    assert order == ["a", "b"] * 3
    assert measured == {"a": [3, 5], "b": [4, 6]}
    assert listing("Title", probes, measured).rows[1][1].value == 5  # type: ignore[union-attr]


def test_calls_are_repeated_until_the_clock_can_tell_them(clock: list[float]) -> None:
    calls, waits = [0], [0]

    def call() -> None:
        calls[0] += 1
        clock[0] += 0.01

    def wait() -> None:
        waits[0] += 1
        clock[0] += 0.04

    assert seconds_per_call(call, finish=wait) == pytest.approx((0.08 + 0.04) / 8)  # the device's time counts
    assert (calls[0], waits[0]) == (1 + 2 + 4 + 8, 2 * 4)


def test_repetitions_fit_the_time() -> None:
    assert fitting(lambda count: 0.1 * count, at_least=1.0) == 10
    assert fitting(lambda count: 2.0 * count, at_least=1.0) == 1
    assert fitting(lambda count: 2.0 * count, at_least=1.0, fewest=4) == 4


@pytest.mark.parametrize(("seconds", "steps"), [(0.2, 3), (4.0, 1)])
def test_a_block_clocks_enough_steps_and_leaves_the_first_out(
    clock: list[float], seconds: float, steps: int
) -> None:
    taken: list[float] = []

    def take_step() -> None:
        taken.append(seconds if taken and len(taken) != 2 + steps else 100.0)  # each block's first is slow
        clock[0] += taken[-1]

    block = ClockedSteps(take_step)
    assert block() == pytest.approx(seconds)
    assert len(taken) == 1 + 1 + steps  # to warm up, to see how long one takes, and clocked
    assert block() == pytest.approx(seconds)
    assert len(taken) == (1 + 1 + steps) + (1 + steps)


def test_bytes_in_words() -> None:
    assert [bytes_said(count) for count in (4096, 2**20, 3 * 2**29)] == ["4 KiB", "1 MiB", "1,536 MiB"]


# --- the checkout -------------------------------------------------------------------------------------


def test_nothing_is_left_in_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkout, "ROOT", tmp_path)
    with pytest.raises(RuntimeError), checkout.scratch_folder() as folder:
        (folder / "large").write_bytes(b"1")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".scratch").mkdir()
    (tmp_path / ".scratch" / "of-a-stage").touch()
    with checkout.scratch_folder():
        pass
    assert [each.name for each in (tmp_path / ".scratch").iterdir()] == ["of-a-stage"]


def test_a_command_runs_this_checkout_and_fails_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DVC_EXP_NAME", "MLFLOW_TRACKING_URI", "GIT_DIR"):
        monkeypatch.setenv(name, "elsewhere")
        assert name not in checkout.environment()
    program = "import parashot, sys; print(parashot.__file__, sys.executable)"
    source = checkout.ROOT / "src/parashot/__init__.py"
    assert checkout.run_command("python", "-c", program).startswith(str(source))
    failing = "import sys; sys.exit('Traceback\\nerror: the disk is full\\nERROR: failed to reproduce')"
    with pytest.raises(DeviceError, match=r"ended with 1: error: the disk is full$"):
        checkout.run_command("python", "-c", failing)
    with pytest.raises(DeviceError, match="no-such-program cannot be started"):
        checkout.run_command("no-such-program")


# --- bounds -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "verdict", "short"),
    [
        (Row("a", interval(3.0), 3), "holds", False),
        (Row("a", interval(2.99), 3), "falls short", True),
        (Row("a", interval(0.5), 0.5, least=False), "holds", False),
        (Row("a", interval(0.51), 0.5, least=False), "falls short", True),
        (Row("a", interval(2.0), 3, excuse="no units"), "not asked here: no units", False),
        (Row("a", None, 3, excuse="no disk"), "not measured: no disk", True),
    ],
)
def test_a_row_holds_when_its_median_reaches_the_bound(row: Row, verdict: str, short: bool) -> None:
    assert (row.verdict, row.short) == (verdict, short)


@pytest.mark.parametrize(("value", "status"), [(4.0, 0), (2.0, 1)])
def test_the_command_fails_where_a_bound_falls_short(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], value: float, status: int
) -> None:
    monkeypatch.setattr(check, "_PARTS", (lambda quick, raw: iter([Row("steps", interval(value), 3)]),))
    assert main(["check"]) == status
    assert ("falls short" in capsys.readouterr().out) == (status == 1)


def test_check_keeps_its_rows_and_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of the committed result, in their order, with what each is held to."""
    compared = type("Compared", (), {"times_faster": lambda *_: interval(9), "seconds": {}})()
    compared.peaks = {"study": 4, "bf16": 1, "bf16, recompute": 1}
    found = dict.fromkeys(("study", "study_floats", "copy"), interval(99))
    loader = type("Loader", (), {"seconds": {}, "ratios": lambda _: found})()
    ddp = type("Ddp", (), {"workload": check.step._DDP_REFERENCE, "efficiency": interval(1)})()
    ddp.serial = ddp.ddp = ddp.apart = []
    growth = check.scale.Growth(1, [1.0] * 3, [1.0] * 3, 0, 0)
    monkeypatch.setattr(check.loader, "measure_compared", lambda quick: loader)
    monkeypatch.setattr(check.scale, "scale_ratio", lambda images, quick: growth)
    monkeypatch.setattr(check.step, "compare", lambda *_, memory: compared)
    monkeypatch.setattr(check.step, "measure_ddp", lambda quick: ddp)
    monkeypatch.setattr(check, "help_seconds", lambda: [0.1, 0.1])
    monkeypatch.setattr(check, "precisions", lambda device: ("fp32", "bf16"))
    committed = json.loads((RESULTS / "check.json").read_text())["tables"][0]["rows"]
    rows = check.run(quick=False).tables[0].rows
    assert [(row[0], row[2]) for row in rows] == [(each["bound"], each["wanted"]) for each in committed]


# --- pages --------------------------------------------------------------------------------------------


def made_results(folder: Path) -> Path:
    """Two results as the benchmarks save them."""
    table = Table(
        "Bounds", ("bound", "measured", "n"), [("loader", interval(51.5), 1_234), ("step", None, 1)]
    )
    for name in ("pipeline", "check"):
        save(Outcome(name, [table], seconds=90), folder / f"{name}.json")
    return folder


def test_the_page_holds_the_results(tmp_path: Path) -> None:
    text = page(made_results(tmp_path))
    assert text.index("## check") < text.index("## pipeline")
    assert text.count("51.5 (46.4 to 56.7)") == text.count("1,234") == 2
    assert "1.5 minutes" in text
    made = with_bounds(f"before\n{BEGIN}\nold\n{END}\nafter\n", tmp_path)
    assert made.startswith("before\n") and made.endswith("\nafter\n")
    assert "old" not in made and "51.5 (46.4 to 56.7)" in made
    assert with_bounds(made, tmp_path) == made


def test_a_saved_table_is_the_shown_one(tmp_path: Path) -> None:
    outcome = Outcome("check", [Table("T", ("a", "b"), [("x", 1_234), ("y", 0.5)])])
    save(outcome, tmp_path / "check.json")
    assert "1,234" in show(outcome)
    tree = json.loads((tmp_path / "check.json").read_text())
    assert tree["tables"][0]["rows"] == [{"a": "x", "b": 1234}, {"a": "y", "b": 0.5}]
    assert tree["hardware"]["cores"] >= 1 and tree["versions"]["torch"]


def test_the_committed_pages_are_those_of_the_committed_results() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(RESULTS)
    readme = README.read_text(encoding="utf-8")
    assert with_bounds(readme, RESULTS) == readme
    assert {path.stem for path in RESULTS.glob("*.json")} == set(BENCHMARKS)
    leaks = json.loads((RESULTS / "leaks.json").read_text())
    assert len(draw_leaks(leaks).axes) == 6
