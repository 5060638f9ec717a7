"""Steps that meet NaN or infinity: found, named and ended, or left out as if they had never been."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from parashot.data.batches import Batch, Plan
from parashot.train.assemble import new_strategy, ready_batches, training_batches
from standing_ranks import StandingRanks
from tiny_data import tiny_params
from torch import distributed as dist

from parashot.errors import NonfiniteError
from parashot.parallel.context import Context, Placement, control_group
from parashot.parallel.registry import STRATEGIES
from parashot.parallel.strategy import any_nonfinite
from parashot.params import Params
from parashot.recipes import Value
from parashot.records import Run, read_json, read_result, read_rows
from parashot.train.job import Job
from parashot.train.loop import train_steps
from parashot.train.records import HistoryRow, TrainResult
from parashot.train.run import _Training, train

pytestmark = pytest.mark.usefixtures("one_core")

ALONE = Context(0, 1, 0, 1, Placement("cpu", 2, 1, 2))
BATCHSZ, STEPS, BROKEN = 3, 5, 2
EPISODES = BATCHSZ * STEPS


def settings(strategy: str, answer: str) -> Params:
    return tiny_params({"train.on_nonfinite": answer, f"parallel.{strategy}.enabled": True})


def poisoned(batch: Batch, values: float = math.nan) -> Batch:
    """The same batch, normalised, with one value of its first episode no number."""
    support = batch.support.float() / 255
    support[0, 0, 0, 0, 0, 0] = values
    return batch.with_tensors(support, batch.query.float() / 255, batch.episodes)


def with_one_poisoned(batches: list[Batch], plan: Plan) -> list[Batch]:
    """The batches, in one of whose steps the first episode, one rank's or everyone's, is poisoned."""
    first = BROKEN * plan.batchsz
    return [*batches[:BROKEN], _poisoned_if(batches[BROKEN], first), *batches[BROKEN + 1 :]]


def _poisoned_if(batch: Batch, first: int) -> Batch:
    return poisoned(batch) if int(batch.episodes[0]) == first and batch.weight else batch


def call(name: str, ranks: StandingRanks, function: object, *args: object) -> object:
    assert callable(function)
    return (
        function(ALONE, name, *args)
        if STRATEGIES[name].processes(2) == 1
        else ranks(2, function, name, *args)
    )


# --- the flag -----------------------------------------------------------------------------------------------


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


# --- skip ---------------------------------------------------------------------------------------------------


def skipping(context: Context, name: str, params: Params, packed: Path) -> tuple[bool, list[bool]]:
    """Whether a poisoned step among others leaves what the others alone leave, and the steps' flags."""
    states, flags = [], []
    for poison in (True, False):
        strategy = new_strategy(name, params, context)
        strategy.network.train()
        batches = ready_batches(params, packed, strategy, BATCHSZ, STEPS)
        plan = strategy.plan(EPISODES, BATCHSZ, context.rank, context.ranks)
        batches = with_one_poisoned(batches, plan) if poison else batches[:BROKEN] + batches[BROKEN + 1 :]
        for batch in batches:
            sums = strategy.step(batch)
            if context.ranks > 1:
                dist.all_reduce(sums)
            if poison:
                flags.append(bool(sums[2]))
        strategy.synchronise_buffers()
        states.append(strategy.state_dict())
        strategy.close()
    poisoned_state, clean = states
    return all(torch.equal(poisoned_state[key], value) for key, value in clean.items()), flags


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_step_that_is_left_out_leaves_no_trace(name: str, ranks: StandingRanks, tiny_packed: Path) -> None:
    same, flags = call(name, ranks, skipping, settings(name, "skip"), tiny_packed)  # type: ignore[misc]
    assert flags == [step == BROKEN for step in range(STEPS)]
    assert same


def test_an_endless_gradient_under_a_finite_loss_is_seen(tiny_packed: Path) -> None:
    params = settings("serial", "skip")
    strategy = new_strategy("serial", params, ALONE)
    before = strategy.state_dict()
    last = list(strategy.network.parameters())[-1]
    last.register_hook(lambda gradient: gradient * math.inf)
    sums = strategy.step(ready_batches(params, tiny_packed, strategy, BATCHSZ, 1)[0])
    assert torch.isfinite(sums[0])
    assert sums[2] == 1
    assert all(torch.equal(before[key], value) for key, value in strategy.state_dict().items())


# --- stop ---------------------------------------------------------------------------------------------------


def stopping(context: Context, name: str, params: Params, packed: Path) -> tuple[str, list[int]]:
    """What a training says that meets a poisoned step, the same on every rank, and its pauses before."""
    strategy = new_strategy(name, params, context)
    batches = ready_batches(params, packed, strategy, BATCHSZ, STEPS)
    plan = strategy.plan(EPISODES, BATCHSZ, context.rank, context.ranks)
    pauses: list[int] = []
    try:
        train_steps(
            strategy,
            iter(with_one_poisoned(batches, plan)),
            plan,
            learning_rate=lambda step: 0.001,
            pauses=lambda done: done % 2 == 0,
            on_pause=lambda done, trace: pauses.append(done) is None,
        )
    except NonfiniteError as error:
        said = [str(error)] * context.ranks
        if context.ranks > 1:
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
    said, pauses = call(name, ranks, stopping, settings(name, "stop"), tiny_packed)  # type: ignore[misc]
    assert said.startswith("NaN or infinity in step 3 of 5 (episodes 6 to 8), loss nan; ")
    assert "train.on_nonfinite=skip" in said
    assert "\n" not in said
    assert pauses == [2]


# --- whole trainings ----------------------------------------------------------------------------------------


@pytest.fixture
def poisoned_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one thing that is not real: no data set of bytes holds NaN."""

    def batches(params: Params, packed: Path, plan: Plan, context: Context, first: int) -> Iterator[Batch]:
        return (
            _poisoned_if(batch, BROKEN * BATCHSZ)
            for batch in training_batches(params, packed, plan, context, first)
        )

    monkeypatch.setattr("parashot.train.run.training_batches", batches)


@pytest.mark.usefixtures("poisoned_data")
@pytest.mark.parametrize("strategy", ["serial", "dp"])
def test_a_stopped_training_keeps_its_last_good_state_and_goes_on_without_the_step(
    strategy: str, tiny_packed: Path, tmp_path: Path
) -> None:
    seen: list[Run] = []
    knobs: dict[str, Value] = {
        "train.episodes": EPISODES,
        "train.checkpoint_every": 1,
        "train.validate_every": 1,
        "tracking.live_seconds": 0,
    }
    scratch = tmp_path / "scratch"
    stop = tiny_params(knobs)
    skip = tiny_params({**knobs, "train.on_nonfinite": "skip"})
    job = Job(strategy, stop, tiny_packed, tmp_path / "out", live=seen.append, scratch=scratch)
    with pytest.raises(NonfiniteError) as error:
        train(job)
    assert str(error.value).startswith(f"train {strategy}: NaN or infinity in step 3 of 5 (episodes 6 to 8)")
    assert not job.out.exists()
    assert [each.status for each in seen] == ["running", "running", "failed"]
    assert sorted(path.name for path in scratch.glob("*/*.pt")) == [f"step-{step:012d}.pt" for step in (1, 2)]
    train(dataclasses.replace(job, params=skip))
    at_once = dataclasses.replace(job, params=skip, out=tmp_path / "at_once", scratch=None)
    train(at_once)
    resumed, result = (read_result(TrainResult, each / "result.json") for each in (job.out, at_once.out))
    assert (resumed.nonfinite_steps, resumed.resumed) == (1, 1)
    assert (result.nonfinite_steps, result.resumed) == (1, 0)
    assert (job.out / "model.pt").read_bytes() == (at_once.out / "model.pt").read_bytes()
    assert read_json(job.out / "metrics.json")["nonfinite_steps"] == 1
    losses = [row.loss for row in read_rows(HistoryRow, job.out / "history.csv")]
    assert [math.isnan(loss) for loss in losses] == [step == BROKEN for step in range(STEPS)]


@pytest.mark.parametrize("answer", ["stop", "skip"])
def test_where_all_is_well_both_answers_are_one(answer: str, tiny_packed: Path, tmp_path: Path) -> None:
    models = []
    for each in ("stop", answer):
        job = Job("serial", settings("serial", each), tiny_packed, tmp_path / each)
        result = train(job)
        assert result is not None
        assert result.nonfinite_steps == 0
        models.append((job.out / "model.pt").read_bytes())
    assert models[0] == models[1]


# --- ranks that drift apart ---------------------------------------------------------------------------------


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
    params = tiny_params(
        {"train.episodes": EPISODES, "train.checkpoint_every": 1, f"parallel.{strategy}.enabled": True}
    )
    job = Job(strategy, params, tiny_packed, tmp_path / "out", scratch=tmp_path / "scratch")
    assert ranks(2, drifting, job).ranks_identical is False
    assert read_result(TrainResult, job.out / "result.json").ranks_identical is False
