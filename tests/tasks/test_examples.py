"""Each example is a training: on one batch its loss falls, and replicas begin with the same one.

Without dropout, which is random, so that every run of a test computes the same.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from small_tasks import alone, on_ranks
from standing_ranks import StandingRanks

from parashot.parallel.context import Context
from parashot.parallel.registry import build_strategy
from parashot.parallel.strategy import StepOptions
from parashot.questions.own.measure import own_parallel
from parashot.tasks.own import own_task
from parashot.train.loop import train_steps

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


def losses(context: Context, name: str, file: Path, steps: int) -> list[float]:
    task = replace(own_task(file), random=False)
    strategy = build_strategy(name, task, StepOptions(), context, own_parallel())
    plan = strategy.plan(steps * task.batchsz, task.batchsz, context)
    batches = [next(task.batches(plan, context))] * steps
    trace = train_steps(
        strategy, iter(batches), plan, pauses=lambda done: False, on_pause=lambda done, trace: True
    )
    strategy.close()
    return trace.losses


@pytest.mark.usefixtures("one_core")
@pytest.mark.parametrize(
    "file",
    [
        pytest.param(file, id=file.stem, marks=[pytest.mark.slow] if file.stem == "image_classifier" else [])
        for file in EXAMPLES
    ],
)
def test_an_example_trains(file: Path, ranks: StandingRanks) -> None:
    found = losses(alone(), "serial", file, 6)
    assert found[-1] < found[0]
    first = on_ranks(ranks, "ddp", losses, file, 1)
    assert first == pytest.approx(found[:1], rel=0.05)  # batch norm takes each share by itself
