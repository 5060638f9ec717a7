"""The loop: clock (a reading takes a second), pauses, rates, means, and steps in parts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from types import SimpleNamespace

import pytest
import torch
from small_tasks import TOLERANCE, State, VectorTask, alone, assert_equal, build_relation, episode_batch
from tiny_data import tiny_params

from parashot.parallel.registry import build_strategy
from parashot.parallel.strategy import StepOptions, Strategy
from parashot.train import loop
from parashot.train.loop import Trace, train_steps

STEPS = 5  # of 3 items, the last of 2


class RatedTask(VectorTask):
    def learning_rates(self, steps: int) -> Callable[[int], float]:
        return lambda step: 0.5**step


def train(
    task: VectorTask, pause_every: int, on_pause: Callable[[int, Trace], bool] = lambda done, trace: True
) -> tuple[Strategy, Trace]:
    strategy = build_strategy("serial", task, StepOptions(), alone(), tiny_params().parallel)
    strategy.network.eval()
    plan = strategy.plan(task.items, task.batchsz, alone())
    batches = task.batches(plan, alone())
    return strategy, train_steps(
        strategy, batches, plan, pauses=lambda done: done % pause_every == 0, on_pause=on_pause
    )


@pytest.mark.parametrize(("pause_every", "expected"), [(1, [1, 2, 3, 4, 5]), (2, [2, 4, 5]), (9, [5])])
def test_it_pauses_at_every_interval_and_after_the_last_step(
    monkeypatch: pytest.MonkeyPatch, pause_every: int, expected: list[int]
) -> None:
    """Pauses are in no time, and change no result."""
    ticks, pauses = count(), []
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))

    def validate(done: int, trace: Trace) -> bool:
        pauses.append(done)
        assert len(trace.losses) == len(trace.accuracies) == len(trace.step_seconds) == done
        for _ in range(1000):
            next(ticks)
        return True

    task = VectorTask(batchsz=3, items=14)
    strategy, trace = train(task, pause_every, validate)
    assert pauses == expected
    assert trace.data_seconds == [1.0] * STEPS
    assert trace.step_seconds == [2.0] * STEPS
    assert trace.seconds == 2 * STEPS
    assert strategy.network.training
    assert trace.losses == train(task, 9)[1].losses
    data = next(task.batches(strategy.plan(14, 3, alone()), alone())).data
    outputs = task.network()(data["x"]).detach()
    assert trace.losses[0] == pytest.approx(float(task.loss(outputs, data).mean()))
    assert trace.accuracies[0] == pytest.approx(float(task.metric(outputs, data).mean()))
    assert {type(value) for value in (*trace.losses, *trace.accuracies)} == {float}  # so no graph is kept


def test_a_pause_can_end_the_training() -> None:
    _, trace = train(VectorTask(batchsz=3, items=14), 2, lambda done, trace: done < 4)
    assert len(trace.losses) == len(trace.step_seconds) == 4


@pytest.mark.parametrize(
    ("kind", "expected"), [(RatedTask, [1, 0.5, 0.25, 0.125, 0.0625]), (VectorTask, [0.05] * STEPS)]
)
def test_each_step_has_the_rate_of_its_task_or_its_optimizer(
    monkeypatch: pytest.MonkeyPatch, kind: type[VectorTask], expected: list[float]
) -> None:
    rates: list[float] = []
    step = torch.optim.RMSprop.step

    def noting(self: torch.optim.RMSprop) -> None:
        rates.append(self.param_groups[0]["lr"])
        step(self)

    monkeypatch.setattr(torch.optim.RMSprop, "step", noting)
    train(kind(batchsz=3, items=14), 2)
    assert rates == expected


def in_parts(parts: int, norm_episodes: int) -> tuple[State, torch.Tensor]:
    """What a step of 7 episodes leaves but for running statistics, and the step's sums."""
    settings = {"train.batchsz": 7, "train.accumulate": parts, "model.norm_episodes": norm_episodes}
    strategy = build_relation(alone(), "serial", settings, training=True)
    sums = strategy.step(episode_batch(strategy, 7))
    moved = ("running_mean", "running_var", "num_batches_tracked")  # once for each part
    return {name: each for name, each in strategy.state_dict().items() if not name.endswith(moved)}, sums


def test_in_parts_batch_norm_takes_the_same_groups_of_episodes_and_without_groups_a_part_at_a_time() -> None:
    """In training mode; test_strategies.py has eval mode."""
    (whole, once), (state, thrice) = (in_parts(parts, norm_episodes=1) for parts in (1, 3))
    torch.testing.assert_close(thrice, once, rtol=0, atol=TOLERANCE)
    assert_equal(state, whole)
    (_, once), (_, thrice) = (in_parts(parts, norm_episodes=0) for parts in (1, 3))
    assert abs(thrice[0] - once[0]) > 1e-3
