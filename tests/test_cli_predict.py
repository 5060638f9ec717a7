"""`parashot predict`: a table, JSON, and one line for what the user can mend."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parashot.cli import main
from parashot.questions.scaling.records import CostMessage, CostStep
from parashot.questions.strategies.records import StepShares, StepTrace, StrategyBlock, StrategyVariant
from parashot.records import write_metrics, write_rows

ROUNDS = range(7)


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what a study of two replicas left: 0.01 s and 0.1 s per episode, 1 ms to all-reduce."""
    folder = tmp_path / "results/strategies"
    variants = [
        StrategyVariant(name, name, "ok", "", count, 1, 8) for name, count in (("serial", 1), ("ddp", 2))
    ]
    times = {"serial": 0.81, "ddp": 0.41}
    anatomy = [StepTrace("ddp", 2, 2, 2, 1, 0, 0, 0, 0, 0, 0, 460_000, 460_000)]
    steps = [
        CostStep(number, busy, size, 1, 0.01 + 0.1 * size)
        for number in ROUNDS
        for busy in (1, 2)
        for size in (1, 2, 4, 8)
    ]
    messages = [
        CostMessage(number, 2, size, 1, 1e-3 + 1e-9 * size)
        for number in ROUNDS
        for size in (2**12, 2**20, 2**24)
    ]
    blocks = [StrategyBlock(0, number, name, 1, each) for name, each in times.items() for number in ROUNDS]
    write_rows(folder / "variants.csv", StrategyVariant, variants)
    write_rows(folder / "blocks.csv", StrategyBlock, blocks)
    write_rows(folder / "anatomy.csv", StepTrace, anatomy)
    write_rows(folder / "shares.csv", StepShares, [])
    write_rows(folder / "cost_steps.csv", CostStep, steps)
    write_rows(folder / "cost_messages.csv", CostMessage, messages)
    write_metrics(folder / "metrics.json", {})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_table_of_every_number_of_devices(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "--gpus", "4,1,2", "--link", "ethernet-10g"]) == 0
    printed = capsys.readouterr()
    rows = [line.split() for line in printed.out.splitlines() if line.startswith("ethernet-10g")]
    assert [row[1:5] for row in rows[:3]] == [["strong", str(n), str((n + 1) // 2), "8"] for n in (1, 2, 4)]
    assert len(rows) == 6 and printed.err == ""
    assert "The model checked here" in printed.out


def test_json_has_every_digit(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["predict", "--gpus", "64", "--link", "12.5,5", "--per-node", "8", "--batchsz", "128", "--json"]
    assert main(words) == 0
    tree = json.loads(capsys.readouterr().out)
    strong, weak = tree["rows"]
    assert (strong["nodes"], strong["batchsz"], weak["batchsz"]) == (8, 128, 8192)
    seconds = strong["seconds_per_step"]
    assert seconds["low"] <= seconds["value"] <= seconds["high"]
    assert weak["efficiency"]["value"] == pytest.approx(weak["speedup"]["value"] / 64)
    assert [row["variant"] for row in tree["checked"]] == ["serial", "ddp"]
    assert tree["checked"][0]["error"] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--link", "token-ring"], "link 'token-ring' is unknown; choose one of here, ethernet-1g, "),
        (["--link", "0,1"], "link '0,1': GB/s must be above 0"),
        (["--within", "1,x"], "link '1,x' is unknown"),
        (["--gpus", "1,two"], "--gpus '1,two': whole numbers from 1"),
        (["--gpus", ""], "--gpus '': whole numbers from 1"),
        (["--gpus", "0"], "--gpus '0': whole numbers from 1"),
    ],
)
def test_what_was_asked_wrongly_is_one_line(
    study: Path, capsys: pytest.CaptureFixture[str], words: list[str], line: str
) -> None:
    assert main(["predict", *words]) == 1
    printed = capsys.readouterr()
    assert printed.err.startswith(f"error: {line}") and printed.err.count("\n") == 1
    assert printed.out == ""


def test_what_was_not_measured_says_what_to_run(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (study / "results/strategies/cost_steps.csv").unlink()
    assert main(["predict"]) == 1
    assert "run `dvc repro -f -s strategy-bench`" in capsys.readouterr().err
    (study / "results/strategies/variants.csv").unlink()
    assert main(["predict"]) == 1
    line = capsys.readouterr().err
    assert line.startswith("error: results/strategies/variants.csv: cannot be read")
    assert "run `dvc repro`" in line and line.count("\n") == 1
