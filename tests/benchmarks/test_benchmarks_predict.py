"""The check of the model of cost fails where, and only where, a prediction is off."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import predict
from benchmarks.__main__ import main
from benchmarks.outcome import save
from parashot.questions.results import StrategyResults
from parashot.questions.scaling.records import CostMessage, CostStep
from parashot.questions.strategies.records import StepTrace, StrategyBlock, StrategyVariant

ROUNDS = range(3)


def bench(ddp: float) -> StrategyResults:
    """0.1 s per episode and nothing else; two replicas take `ddp` seconds for 4 episodes."""
    times = {"serial": 0.4, "ddp": ddp}
    return StrategyResults(
        tuple(StrategyVariant(name, name, "ok", "", place, 1, 4) for place, name in enumerate(times, 1)),
        tuple(StrategyBlock(number, name, 1, each) for name, each in times.items() for number in ROUNDS),
        (StepTrace("ddp", 2, 2, 1, 0, 0, 0, 0, 0, 0, 0, 400, 400),),
        cost_steps=tuple(
            CostStep(number, busy, size, 1, 0.1 * size)
            for number in ROUNDS
            for busy in (1, 2)
            for size in (1, 2, 4)
        ),
        cost_messages=tuple(
            CostMessage(number, 2, size, 1, 1e-5 + 1e-9 * size)
            for number in ROUNDS
            for size in (2**12, 2**20)
        ),
    )


@pytest.mark.parametrize(("ddp", "status"), [(0.2, 0), (0.22, 0), (0.25, 1), (0.15, 1)])
def test_the_command_fails_where_a_prediction_is_off(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ddp: float, status: int
) -> None:
    monkeypatch.setattr(predict, "launch", lambda *_: bench(ddp))
    assert main(["predict", "--quick"]) == status
    printed = capsys.readouterr().out
    assert printed.count("within 15%") == 2 - status and printed.count("| off ") == status


def test_it_runs_and_its_result_can_be_saved(tmp_path: Path) -> None:
    outcome = predict.run(quick=True)
    rows: list[Any] = list(outcome.tables[0].rows)
    assert [row[1] for row in rows] == [1, 2]
    assert all(row[2].value > 0 and row[3].value > 0 for row in rows)
    save(replace(outcome, seconds=1.0), tmp_path / "predict.json")
