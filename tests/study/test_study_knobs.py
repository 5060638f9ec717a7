"""What a stage tells MLflow of params is what dvc.yaml says it depends on."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from parashot.pretrain import result as pretrain

from parashot.questions.accuracy import measure as evaluate
from parashot.questions.accuracy import warmup
from parashot.questions.batchsz import measure as batchsz
from parashot.questions.loader import measure as loader_bench
from parashot.questions.step import measure as tune
from parashot.questions.strategies import measure as strategy_bench

STAGES = yaml.safe_load((Path(__file__).parents[2] / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
KNOBS = {
    "tune": tune.KNOBS,
    "pretrain": pretrain.KNOBS,
    "loader-bench": loader_bench.KNOBS,
    "strategy-bench": strategy_bench.KNOBS,
    "batchsz": batchsz.KNOBS,
    "warmup": warmup.KNOBS,
    "evaluate": evaluate.KNOBS,
}


@pytest.mark.parametrize("stage", KNOBS)
def test_knobs_are_the_params_of_the_stage(stage: str) -> None:
    assert set(KNOBS[stage]) == set(STAGES[stage]["params"])
