"""The loop's clock, pauses and means, with a strategy and a clock of which every reading is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small_tasks import alone
from torch import nn

from parashot.task import Batch, Plan
from parashot.train import loop
from parashot.train.loop import Trace, train_steps

LOADING, STEPPING, VALIDATING = 1.0, 4.0, 1000.0
LOSS, ACCURACY = 0.25, 0.75
PLAN = Plan(items=14, batchsz=3)  # 5 steps, the last of 2 items
TOTALS = [3, 3, 3, 3, 2]


class World:
    """A strategy, its task and its batches, whose work advances the clock."""

    context = alone()
    options = SimpleNamespace(skip_nonfinite=False)

    def __init__(self) -> None:
        self.now, self.fetched, self.stepped = 0.0, 0, 0
        self.network = nn.Linear(1, 1).eval()
        self.task = SimpleNamespace(learning_rates=lambda steps: lambda step: 0.5**step)
        self.rates: list[float] = []

    def perf_counter(self) -> float:
        return self.now

    def batches(self) -> Iterator[Batch]:
        for step in range(PLAN.steps):
            self.now += LOADING
            self.fetched += 1
            yield Batch(torch.zeros(1), PLAN.total(step))

    def set_learning_rate(self, rate: float) -> None:
        assert len(self.rates) == self.stepped
        self.rates.append(rate)

    def step(self, batch: Batch) -> torch.Tensor:
        self.now += STEPPING
        self.stepped += 1
        sums = torch.tensor([LOSS, ACCURACY]) * batch.total + self.stepped - 1
        return torch.cat([sums, torch.zeros(1)])


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Any:
    world = World()
    monkeypatch.setattr(loop, "time", world)
    return world


def train(
    world: Any, pause_every: int, on_pause: Callable[[int, Trace], bool] = lambda done, trace: True
) -> Trace:
    return train_steps(
        world,
        world.batches(),
        PLAN,
        pauses=lambda done: done % pause_every == 0,
        on_pause=on_pause,
    )


@pytest.mark.parametrize(("pause_every", "expected"), [(1, [1, 2, 3, 4, 5]), (2, [2, 4, 5]), (9, [5])])
def test_it_pauses_at_every_interval_and_after_the_last_step(
    world: Any, pause_every: int, expected: list[int]
) -> None:
    """Each step has a rate of its own, and the means of its items, as plain numbers."""
    pauses = []

    def note(done: int, trace: Trace) -> bool:
        pauses.append(done)
        assert len(trace.losses) == len(trace.accuracies) == len(trace.times.step_seconds) == done
        return True

    trace = train(world, pause_every, note)
    assert pauses == expected
    assert trace.losses == pytest.approx([LOSS + index / total for index, total in enumerate(TOTALS)])
    assert trace.accuracies == pytest.approx([ACCURACY + index / total for index, total in enumerate(TOTALS)])
    assert {type(value) for value in (*trace.losses, *trace.accuracies)} == {float}  # so no graph is kept
    assert world.rates == [1, 0.5, 0.25, 0.125, 0.0625]
    assert world.network.training


def test_the_clock_stands_still_in_pauses(world: Any) -> None:
    def validate(done: int, trace: Trace) -> bool:
        world.now += VALIDATING
        return True

    times = train(world, 2, validate).times
    assert times.data_seconds == [LOADING] * 5
    assert times.step_seconds == [LOADING + STEPPING] * 5
    assert times.seconds == 5 * (LOADING + STEPPING)


def test_a_pause_can_end_the_training(world: Any) -> None:
    trace = train(world, 2, lambda done, trace: done < 4)
    assert len(trace.losses) == world.fetched == world.stepped == 4
    assert trace.times.seconds == 4 * (LOADING + STEPPING)


def test_a_task_without_rates_leaves_those_of_its_optimizer(world: Any) -> None:
    world.task = SimpleNamespace(learning_rates=lambda steps: None)
    train(world, 2)
    assert world.rates == []
