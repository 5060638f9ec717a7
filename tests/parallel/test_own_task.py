"""Strategies know no Relation Network: an MLP on vectors is trained by every one that shares out items."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from small_tasks import NOWHERE, TOLERANCE, State, VectorTask, alone, assert_equal, on_ranks, train_all
from standing_ranks import StandingRanks
from tiny_data import tiny_params
from torch import nn

from parashot.parallel import registry
from parashot.parallel.context import Context, Placement
from parashot.parallel.fsdp import _blocks
from parashot.parallel.registry import STRATEGIES, build_strategy, unsupported_reason
from parashot.parallel.strategy import StepOptions, TaskModule, channels_last
from parashot.params import ParallelParams
from parashot.parsing import Value
from parashot.task import Plan, Task
from parashot.tasks.relation import RelationTask

SHARING = [name for name, strategy in STRATEGIES.items() if strategy.shares_items]
TASK = VectorTask()
OPTIONS = StepOptions()


def parallel(**settings: Value) -> ParallelParams:
    return tiny_params({f"parallel.{name}.enabled": True for name in STRATEGIES}, **settings).parallel


def trained(context: Context, name: str, task: Task, options: StepOptions) -> tuple[State, list[float]]:
    return train_all(build_strategy(name, task, options, context, parallel()), task.items)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("name", SHARING)
def test_every_data_parallel_strategy_trains_it_as_serial_does(
    name: str, parts: int, ranks: StandingRanks
) -> None:
    """The last step has 2 items, fewer than the 3 replicas."""
    options = replace(OPTIONS, accumulate=parts)
    state, losses = on_ranks(ranks, name, trained, TASK, options, replicas=3)
    expected, expected_losses = trained(alone(), "serial", TASK, OPTIONS)
    assert_equal(state, expected, TOLERANCE)
    assert losses == pytest.approx(expected_losses, abs=1e-10)
    assert len(losses) == 4


def said(
    name: str, replicas: int = 2, mode: str = "none", gpus: int | None = None, head: str = "relation"
) -> str:
    task = RelationTask(tiny_params({"model.head": head}), NOWHERE)
    placement = Placement("cpu" if gpus is None else "cuda", replicas, 1, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "device_count", lambda: gpus or 0)
        return unsupported_reason(name, task, StepOptions(compile=mode), placement, parallel())


def test_what_a_strategy_cannot_train_is_said_in_words() -> None:
    assert [said(name) for name in STRATEGIES] == [""] * len(STRATEGIES)
    assert "2 or more devices" in said("fsdp", 1)
    assert "parallel.replicas=2" in said("layer_split", 3)
    assert all("2 to 8 devices" in said("channel_split", replicas) for replicas in (1, 9))
    assert "model.head=relation" in said("channel_split", head="residual")
    assert "2 replicas need as many GPUs" in said("ddp", gpus=1)
    with pytest.MonkeyPatch.context() as patch:  # a GPU on each of two machines
        patch.setattr(registry, "joined_by_torchrun", lambda: True)
        assert said("ddp", gpus=1) == ""
    compiling = {name for name, strategy in STRATEGIES.items() if strategy.compiles}
    assert {name for name in STRATEGIES if not said(name, mode="default")} == compiling
    two = Placement("cpu", 2, 1, 2)
    able = [name for name in STRATEGIES if not unsupported_reason(name, TASK, OPTIONS, two, parallel())]
    assert able == SHARING
    assert set(parallel().strategies) == set(STRATEGIES)


class InContainers(nn.Module):
    """Layers in containers that have no forward of their own, as some transformers are written."""

    def __init__(self) -> None:
        super().__init__()
        blocks = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.parts = nn.ModuleDict({"first": nn.Linear(2, 3), "blocks": blocks})
        self.last = nn.Sequential(nn.Linear(3, 1), nn.Tanh())


def test_containers_that_are_never_called_are_no_units_of_fsdp() -> None:
    network = InContainers()
    blocks = network.parts["blocks"]
    assert isinstance(blocks, nn.ModuleList)
    assert list(_blocks(network)) == [network.parts["first"], *blocks, network.last[0]]


def test_a_network_without_parameters_of_its_own_is_called() -> None:
    """As a replica of torch.nn.DataParallel is, which holds tensors in their place."""
    module = TaskModule(nn.Identity(), TASK, StepOptions(precision="bf16"), "cpu")
    (batch,) = TASK.ready_batches(Plan(2, 2), 1, alone())
    assert torch.equal(module(batch.data), batch.data["x"])


def test_weights_of_images_change_their_memory_order_and_others_stay() -> None:
    network = channels_last(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv3d(4, 2, 3), nn.Linear(2, 2)))
    images, volumes, rows = (network.get_parameter(f"{layer}.weight") for layer in range(3))
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert volumes.is_contiguous() and rows.is_contiguous()
