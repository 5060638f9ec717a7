"""Steps that meet NaN or infinity: found, named and ended, or left out as if they had never been."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_tasks import alone, build_relation, episode_batch
from standing_ranks import StandingRanks
from tiny_data import tiny_params
from torch import distributed as dist

from parashot.errors import NonfiniteError
from parashot.parallel.context import Context, control_group
from parashot.parallel.registry import STRATEGIES, build_strategy, step_options
from parashot.parallel.strategy import Strategy, any_nonfinite
from parashot.recipes import Value
from parashot.records import Run, read_json, read_rows
from parashot.task import Batch, Plan
from parashot.tasks.relation import RelationTask
from parashot.train.job import Job, episode_job
from parashot.train.loop import train_steps
from parashot.train.records import HistoryRow, TrainResult
from parashot.train.run import _Training, train

pytestmark = pytest.mark.usefixtures("one_core")

STEPS, BROKEN = 5, 2
SETTINGS: dict[str, Value] = {"train.episodes": 3 * STEPS, "train.batchsz": 3}


class PoisonedTask(RelationTask):
    """One value of the first episode of one step is no number: no data set of bytes holds any."""

    def batches(
        self, plan: Plan, context: Context, first: int = 0, *, in_process: bool = False
    ) -> Iterator[Batch]:
        for batch in super().batches(plan, context, first, in_process=in_process):
            support, query, episodes = batch.data
            if int(episodes[0]) == BROKEN * plan.batchsz and batch.weight:
                support, query = support.float() / 255, query.float() / 255
                support[(0,) * support.dim()] = math.nan
            yield replace(batch, data=(support, query, episodes))


def build(context: Context, name: str, answer: str, packed: Path) -> Strategy:
    params = tiny_params({**SETTINGS, "train.on_nonfinite": answer})
    task = PoisonedTask(params, packed)
    return build_strategy(name, task, step_options(params.train), context, params.parallel)


def call(name: str, ranks: StandingRanks, function: Callable[..., Any], *args: object) -> Any:
    if STRATEGIES[name].processes(2) == 1:
        return function(alone(2), name, *args)
    return ranks(2, function, name, *args)


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=5),
    st.sampled_from([math.nan, math.inf, -math.inf]),
    st.integers(0, 199),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_one_value_among_all_is_seen(
    lengths: list[int], value: float, place: int, dtype: torch.dtype
) -> None:
    tensors = [torch.full((length,), torch.finfo(dtype).max, dtype=dtype) for length in lengths]
    assert not any_nonfinite(tensors)
    flat = [(tensor, index) for tensor in tensors for index in range(len(tensor))]
    tensor, index = flat[place % len(flat)]
    tensor[index] = value
    assert any_nonfinite(tensors)


def skipping(context: Context, name: str, packed: Path) -> tuple[bool, list[bool]]:
    """Whether a poisoned step among others leaves what the others alone leave, and the steps' flags."""
    states, flags = [], []
    for poison in (True, False):
        strategy = build(context, name, "skip", packed)
        plan = strategy.plan(strategy.task.items, strategy.task.batchsz, context)
        for step, batch in enumerate(strategy.task.batches(plan, context)):
            if step != BROKEN or poison:
                sums = strategy.step(batch)
                if context.world_size > 1:
                    dist.all_reduce(sums)
                flags.append(bool(sums[2]))
        strategy.synchronise_buffers()
        states.append(strategy.state_dict())
        strategy.close()
    poisoned, clean = states
    return all(torch.equal(poisoned[key], value) for key, value in clean.items()), flags[:STEPS]


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_step_that_is_left_out_leaves_no_trace(name: str, ranks: StandingRanks, tiny_packed: Path) -> None:
    same, flags = call(name, ranks, skipping, tiny_packed)
    assert flags == [step == BROKEN for step in range(STEPS)]
    assert same


def test_an_endless_gradient_under_a_finite_loss_is_seen() -> None:
    strategy = build_relation(alone(), "serial", [("train.on_nonfinite", "skip")])
    before = strategy.state_dict()
    list(strategy.network.parameters())[-1].register_hook(lambda gradient: gradient * math.inf)
    sums = strategy.step(episode_batch(strategy, 3))
    assert torch.isfinite(sums[0])
    assert sums[2] == 1
    assert all(torch.equal(before[key], value) for key, value in strategy.state_dict().items())


def stopping(context: Context, name: str, packed: Path) -> tuple[str, list[int]]:
    """What a training says that meets a poisoned step, the same on every rank, and its pauses before."""
    strategy = build(context, name, "stop", packed)
    plan = strategy.plan(strategy.task.items, strategy.task.batchsz, context)
    pauses: list[int] = []
    try:
        train_steps(
            strategy,
            strategy.task.batches(plan, context),
            plan,
            pauses=lambda done: done % 2 == 0,
            on_pause=lambda done, trace: pauses.append(done) is None,
        )
    except NonfiniteError as error:
        said = [str(error)] * context.world_size
        if context.world_size > 1:
            dist.all_gather_object(said, str(error))
        assert len(set(said)) == 1
        return said[0], pauses
    finally:
        strategy.close()
    return "", pauses


@pytest.mark.parametrize("name", STRATEGIES)
def test_it_is_named_on_every_rank_before_anything_is_made_of_it(
    name: str, ranks: StandingRanks, tiny_packed: Path
) -> None:
    said, pauses = call(name, ranks, stopping, tiny_packed)
    assert said == (
        "NaN or infinity in step 3 of 5 (episodes 6 to 8), loss nan; "
        "set a smaller train.learning_rate, or skip such steps by train.on_nonfinite=skip"
    )
    assert pauses == [2]


@pytest.mark.parametrize("strategy", ["serial", "dp"])
def test_a_stopped_training_keeps_its_last_good_state_and_goes_on_without_the_step(
    strategy: str, tiny_packed: Path, tmp_path: Path
) -> None:
    seen: list[Run] = []
    scratch = tmp_path / "scratch"

    def job(answer: str, out: str, scratch: Path | None = scratch) -> Job:
        every: dict[str, Value] = {"train.checkpoint_every": 1, "train.validate_every": 1}
        params = tiny_params({**SETTINGS, **every, "tracking.live_seconds": 0, "train.on_nonfinite": answer})
        described = episode_job(
            strategy, params, tiny_packed, tmp_path / out, live=seen.append, scratch=scratch
        )
        return replace(described, task=PoisonedTask(params, tiny_packed))

    with pytest.raises(NonfiniteError) as error:
        train(job("stop", "out"))
    assert str(error.value).startswith(f"train {strategy}: NaN or infinity in step 3 of 5 (episodes 6 to 8)")
    assert not (tmp_path / "out").exists()
    assert [each.status for each in seen] == ["running", "running", "failed"]
    assert sorted(path.name for path in scratch.glob("*/*.pt")) == [f"step-{step:012d}.pt" for step in (1, 2)]
    resumed, at_once = train(job("skip", "out")), train(job("skip", "at_once", None))
    assert resumed is not None and at_once is not None
    assert (resumed.nonfinite_steps, resumed.resumed) == (1, 1)
    assert (at_once.nonfinite_steps, at_once.resumed) == (1, 0)
    first, second = ((tmp_path / out / "model.safetensors").read_bytes() for out in ("out", "at_once"))
    assert first == second
    assert read_json(tmp_path / "out/metrics.json")["nonfinite_steps"] == 1
    losses = [row.loss for row in read_rows(HistoryRow, tmp_path / "out/history.csv")]
    assert [math.isnan(loss) for loss in losses] == [step == BROKEN for step in range(STEPS)]


def test_where_all_is_well_both_answers_are_one(tiny_packed: Path, tmp_path: Path) -> None:
    models = []
    for answer in ("stop", "skip"):
        job = episode_job(
            "serial", tiny_params({"train.on_nonfinite": answer}), tiny_packed, tmp_path / answer
        )
        result = train(job)
        assert result is not None
        assert result.nonfinite_steps == 0
        models.append((job.out / "model.safetensors").read_bytes())
    assert models[0] == models[1]


def drifting(context: Context, job: Job) -> TrainResult:
    """A training in which the second rank's parameters change behind everyone's back after two steps."""
    training = _Training(context, job, control_group(context))
    step, done = training.strategy.optimizer.step, []

    def disturbed() -> None:
        step()
        done.append(True)
        if len(done) == 2 + 3 and context.rank == 1:  # three steps measure memory and are forgotten
            bias = next(each for each in training.strategy.network.parameters() if each.dim() == 1)
            with torch.no_grad():
                bias[0].nextafter_(torch.tensor(9.0))

    training.strategy.optimizer.step = disturbed  # type: ignore[assignment, method-assign]
    return training.run()


@pytest.mark.parametrize("strategy", ["ddp", "allreduce"])
def test_one_bit_of_one_rank_is_found_at_the_next_save(
    strategy: str, ranks: StandingRanks, tiny_packed: Path, tmp_path: Path
) -> None:
    params = tiny_params({**SETTINGS, "train.checkpoint_every": 1})
    job = episode_job(strategy, params, tiny_packed, tmp_path / "out", scratch=tmp_path / "scratch")
    assert ranks(2, drifting, job).ranks_identical is False
