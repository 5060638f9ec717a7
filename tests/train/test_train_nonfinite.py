"""Steps that meet NaN or infinity: found, named and ended, or left out as if they had never been."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_tasks import alone, build_relation, episode_batch, on_ranks
from standing_ranks import StandingRanks
from tiny_data import tiny_params
from torch import distributed as dist

from parashot.errors import NonfiniteError
from parashot.parallel.context import Context
from parashot.parallel.registry import STRATEGIES, build_strategy, step_options
from parashot.parallel.strategy import Strategy, any_nonfinite
from parashot.parsing import Value
from parashot.records import Run, read_rows
from parashot.task import Batch, Plan
from parashot.tasks.relation import RelationTask
from parashot.train.job import episode_job
from parashot.train.loop import Trace, train_steps
from parashot.train.records import HistoryRow, TrainResult
from parashot.train.run import train

pytestmark = pytest.mark.usefixtures("one_core")

STEPS, BROKEN = 5, 2
SETTINGS: dict[str, Value] = {"train.episodes": 3 * STEPS, "train.batchsz": 3, "train.checkpoint_every": 1}


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


def build(context: Context, name: str, answer: str, packed: Path) -> tuple[Strategy, Plan, list[Batch]]:
    params = tiny_params({**SETTINGS, "train.on_nonfinite": answer})
    task = PoisonedTask(params, packed)
    strategy = build_strategy(name, task, step_options(params.train), context, params.parallel)
    plan = strategy.plan(task.items, task.batchsz, context)
    return strategy, plan, list(task.batches(plan, context))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_one_value_among_all_is_seen(value: float, dtype: torch.dtype) -> None:
    tensors = [torch.full((length,), torch.finfo(dtype).max, dtype=dtype) for length in (40, 1, 7)]
    assert not any_nonfinite(tensors)
    tensors[2][5] = value
    assert any_nonfinite(tensors)
    sparse = torch.sparse_coo_tensor(torch.tensor([[0, 0]]), torch.ones(2, 3, dtype=dtype), (4, 3))
    assert not any_nonfinite([sparse]) and any_nonfinite([sparse * value])


def test_an_endless_gradient_under_a_finite_loss_is_seen() -> None:
    strategy = build_relation(alone(), "serial", {"train.on_nonfinite": "skip"})
    before = strategy.state_dict()
    list(strategy.network.parameters())[-1].register_hook(lambda gradient: gradient * math.inf)
    sums = strategy.step(episode_batch(strategy, 3))
    assert (bool(torch.isfinite(sums[0])), float(sums[2])) == (True, 1)
    assert all(torch.equal(before[key], value) for key, value in strategy.state_dict().items())


def meeting(context: Context, name: str, packed: Path) -> tuple[bool, list[bool], list[str], list[int]]:
    """Meet a poisoned step.

    Skipping it: whether it leaves what the other steps alone leave, and the steps' flags. Stopping at it:
    what each rank says, and the pauses before.
    """
    states, flags = [], []
    for left_out in ([], [BROKEN]):
        strategy, _, batches = build(context, name, "skip", packed)
        for step in sorted({*range(STEPS)} - {*left_out}):
            sums = strategy.step(batches[step])
            if context.world_size > 1:
                dist.all_reduce(sums)
            flags.append(bool(sums[2]))
        strategy.synchronise_buffers()
        states.append(strategy.state_dict())
        strategy.close()
    strategy, plan, batches = build(context, name, "stop", packed)
    pauses: list[int] = []

    def paused(done: int, trace: Trace) -> bool:
        pauses.append(done)
        return True

    with pytest.raises(NonfiniteError) as error:
        train_steps(strategy, iter(batches), plan, pauses=lambda done: done % 2 == 0, on_pause=paused)
    strategy.close()
    said = [str(error.value)] * context.world_size
    if context.world_size > 1:
        dist.all_gather_object(said, str(error.value))
    same = all(torch.equal(states[0][key], value) for key, value in states[1].items())
    return same, flags, said, pauses


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_step_is_left_out_without_a_trace_or_named_on_every_rank_before_anything_is_made_of_it(
    name: str, ranks: StandingRanks, tiny_packed: Path
) -> None:
    same, flags, said, pauses = on_ranks(ranks, name, meeting, tiny_packed)
    assert flags == [False, False, True, False, False, *[False] * 4]
    assert same
    assert set(said) == {
        "NaN or infinity in step 3 of 5 (episodes 6 to 8), loss nan; "
        "set a smaller train.learning_rate, or skip such steps by train.on_nonfinite=skip"
    }
    assert pauses == [2]


def test_a_stopped_training_keeps_its_last_good_state_and_goes_on_without_the_step(
    tiny_packed: Path, tmp_path: Path
) -> None:
    seen: list[Run] = []
    scratch, out = tmp_path / "scratch", tmp_path / "out"
    shown: dict[str, Value] = {"train.validate_every": 1, "tracking.live_seconds": 0}

    def run(answer: str, **where: Any) -> TrainResult:
        params = tiny_params({**SETTINGS, **shown, "train.on_nonfinite": answer})
        job = episode_job("serial", params, tiny_packed, live=seen.append, **where)
        result = train(replace(job, task=PoisonedTask(params, tiny_packed)))
        assert result is not None
        return result

    with pytest.raises(NonfiniteError, match=r"^train serial: NaN or infinity in step 3 of 5 "):
        run("stop", out=out, scratch=scratch)
    assert not out.exists()
    assert [each.status for each in seen] == ["running", "running", "failed"]
    assert sorted(path.name for path in scratch.glob("*/*.pt")) == [f"step-{step:012d}.pt" for step in (1, 2)]
    resumed = run("skip", out=out, scratch=scratch)
    assert len({(each.uuid, each.start_ms) for each in seen}) == 1, "it is one run in MLflow"
    at_once = run("skip", out=tmp_path / "at_once")
    assert seen[-1].status == "unpublished"
    assert (resumed.nonfinite_steps, resumed.resumed) == (1, 1)
    assert (at_once.nonfinite_steps, at_once.resumed) == (1, 0)
    models = [(tmp_path / each / "model.safetensors").read_bytes() for each in ("out", "at_once")]
    assert models[0] == models[1]
    losses = [row.loss for row in read_rows(HistoryRow, out / "history.csv")]
    assert [math.isnan(loss) for loss in losses] == [step == BROKEN for step in range(STEPS)]
