"""The loop's clock, pauses and means, with a strategy and a clock of which every reading is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from parashot.data.batches import Batch, Plan
from torch import nn

from parashot.parallel.context import Context, Placement
from parashot.parallel.strategy import Strategy
from parashot.train import loop
from parashot.train.loop import Trace, train_steps

LOADING, STEPPING, VALIDATING = 1.0, 4.0, 1000.0
LOSS, ACCURACY = 0.25, 0.75
PLAN = Plan(episodes=14, batchsz=3)  # 5 steps, the last of 2 episodes


class World:
    """A fake strategy and its batches, whose work advances a fake clock."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.now, self.fetched, self.stepped = plan, 0.0, 0, 0
        self.context = Context(0, 1, 0, 1, Placement("cpu", 1, 1, 1))
        self.network = nn.Linear(1, 1).eval()
        self.rates: list[float] = []

    def perf_counter(self) -> float:
        return self.now

    def batches(self) -> Iterator[Batch]:
        for step in range(self.plan.steps):
            self.now += LOADING
            self.fetched += 1
            yield Batch(torch.zeros(1), torch.zeros(1), torch.arange(1), self.plan.total(step), 1)

    def set_learning_rate(self, rate: float) -> None:
        assert len(self.rates) == self.stepped
        self.rates.append(rate)

    def step(self, batch: Batch) -> torch.Tensor:
        self.now += STEPPING
        self.stepped += 1
        sums = torch.tensor([LOSS, ACCURACY]) * batch.total + self.stepped - 1
        return torch.cat([sums, torch.zeros(1)])


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(PLAN)
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=world.perf_counter))
    return world


def train(
    world: World, pause_every: int, on_pause: Callable[[int, Trace], bool] = lambda done, trace: True
) -> Trace:
    strategy = cast(Strategy, world)
    return train_steps(
        strategy,
        world.batches(),
        world.plan,
        learning_rate=lambda step: 0.5**step,
        pauses=lambda done: done % pause_every == 0,
        on_pause=on_pause,
    )


@pytest.mark.parametrize(
    ("pause_every", "expected"), [(1, [1, 2, 3, 4, 5]), (2, [2, 4, 5]), (5, [5]), (9, [5])]
)
def test_it_pauses_at_every_interval_and_after_the_last_step(
    world: World, pause_every: int, expected: list[int]
) -> None:
    pauses = []

    def note(done: int, trace: Trace) -> bool:
        pauses.append(done)
        assert len(trace.losses) == len(trace.accuracies) == len(trace.times.step_seconds) == done
        return True

    train(world, pause_every, note)
    assert pauses == expected


def test_the_clock_stands_still_in_pauses(world: World) -> None:
    def validate(done: int, trace: Trace) -> bool:
        world.now += VALIDATING
        return True

    trace = train(world, 2, validate)
    assert trace.times.data_seconds == [LOADING] * 5
    assert trace.times.step_seconds == [LOADING + STEPPING] * 5
    assert trace.times.seconds == 5 * (LOADING + STEPPING)


def test_a_pause_can_end_the_training(world: World) -> None:
    trace = train(world, 2, lambda done, trace: done < 4)
    assert len(trace.losses) == 4
    assert (world.fetched, world.stepped) == (4, 4)
    assert trace.times.seconds == 4 * (LOADING + STEPPING)


@pytest.mark.parametrize("pause_every", [1, 2, 9])
def test_losses_are_means_over_the_episodes_of_each_step(world: World, pause_every: int) -> None:
    trace = train(world, pause_every)
    totals = [3, 3, 3, 3, 2]
    assert trace.losses == pytest.approx([LOSS + index / total for index, total in enumerate(totals)])
    assert trace.accuracies == pytest.approx([ACCURACY + index / total for index, total in enumerate(totals)])


def test_a_trace_holds_plain_numbers_and_so_no_graph(world: World) -> None:
    trace = train(world, 2)
    values = [*trace.losses, *trace.accuracies, *trace.times.step_seconds, *trace.times.data_seconds]
    assert len(values) == 4 * PLAN.steps
    assert {type(value) for value in values} == {float}


def test_each_step_has_its_own_learning_rate(world: World) -> None:
    train(world, 2)
    assert world.rates == [1, 0.5, 0.25, 0.125, 0.0625]


def test_the_network_is_in_training_mode(world: World) -> None:
    train(world, 2)
    assert world.network.training
