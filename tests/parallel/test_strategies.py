"""Every way to spread a step takes the step that `serial` takes.

On real processes, in float64: plain gradient descent moves each parameter by its gradient, so states equal to
1e-13 after two steps at a rate of 1e-3 are gradients equal to 1e-10.
"""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
import torch
from small_tasks import (
    NOWHERE,
    TOLERANCE,
    Float64Task,
    State,
    VectorTask,
    alone,
    assert_equal,
    build_relation,
    episode_batch,
    on_ranks,
)
from standing_ranks import StandingRanks
from tiny_data import tiny_params
from torch import distributed as dist
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from parashot.model.network import RelationNetwork
from parashot.parallel import registry
from parashot.parallel.context import Context, Placement
from parashot.parallel.exchange import same_on_all_ranks
from parashot.parallel.fsdp import _blocks
from parashot.parallel.registry import STRATEGIES, build_strategy, unsupported_reason
from parashot.parallel.strategy import StepOptions, TaskModule, channels_last
from parashot.parsing import Value
from parashot.task import Plan
from parashot.tasks.relation import RelationTask

Case = tuple[str, int, int, dict[str, Value]]
"""Strategy, replicas, items of a step, and what differs from the usual params."""

CASES: list[Case] = [
    ("serial", 1, 7, {"train.accumulate": 3}),
    ("dp", 3, 5, {"train.accumulate": 2}),
    ("dp", 3, 2, {"parallel.dp.loss_in_replica": False}),
    ("ddp", 3, 1, {}),
    ("ddp", 2, 5, {"train.accumulate": 2, "parallel.ddp.bucket_mb": 0.01}),
    ("ddp", 2, 5, {"parallel.ddp.gradient_as_bucket_view": False}),
    ("allreduce", 3, 2, {"train.accumulate": 2}),
    ("allreduce", 2, 5, {"parallel.allreduce.flat": False}),
    ("fsdp", 3, 2, {"model.head": "residual"}),
    ("fsdp", 2, 5, {"model.head": "bdc"}),
    ("dp", 2, 5, {"model.head": "bdc", "train.n_way": 3}),
    ("fsdp", 2, 3, {"train.accumulate": 2}),  # shares of 2 and 1, whose ranks gather equally often
    ("layer_split", 2, 5, {"model.head": "residual", "parallel.layer_split.micro_batches": 5}),
    ("layer_split", 2, 1, {"model.embedding": "resnet12", "model.pairing": "concat"}),
    ("channel_split", 3, 5, {"model.pairing": "concat", "train.accumulate": 2}),
    ("channel_split", 3, 1, {"model.embedding": "bottleneck", "model.pairing": "concat"}),
    ("channel_split", 3, 1, {"model.embedding": "resnet12"}),
]

IN_TRAINING_MODE: list[Case] = [
    ("dp", 1, 4, {}),
    ("ddp", 1, 4, {}),
    ("allreduce", 1, 4, {}),
    *((name, replicas, 4, {}) for name in ("dp", "ddp", "allreduce", "fsdp") for replicas in (2, 4)),
    ("ddp", 2, 5, {"model.head": "residual", "model.norm_episodes": 3}),
    ("ddp", 2, 5, {"model.head": "bdc"}),
    ("allreduce", 2, 3, {"model.embedding": "resnet12"}),
    ("ddp", 2, 2, {"model.embedding": "bottleneck"}),
    ("ddp", 4, 2, {}),  # two ranks without a share
]
"""Batch norm by episodes makes replicas one algorithm."""


def stepped(
    context: Context,
    name: str,
    batchsz: int,
    settings: dict[str, Value],
    training: bool = False,
    steps: int = 2,
    kind: type[Float64Task] = Float64Task,
) -> tuple[State, torch.Tensor, State]:
    """State after some steps, their sums over all ranks, and the state of the whole network."""
    turned = {"train.batchsz": batchsz, **settings}
    strategy = build_relation(context, name, turned, kind, training=training)
    batch = episode_batch(strategy, batchsz)
    sums = torch.stack([strategy.step(batch) for _ in range(steps)])
    assert strategy.replicas_agree()
    if context.world_size > 1:
        dist.all_reduce(sums)
    whole = {name: value.clone() for name, value in strategy.whole_network().state_dict().items()}
    state = strategy.state_dict()
    strategy.close()
    return state, sums, whole


@pytest.mark.usefixtures("one_core")  # more threads add up in another order, and `bottleneck` multiplies that
@pytest.mark.parametrize(
    ("name", "replicas", "batchsz", "settings", "training"),
    [*((*case, False) for case in CASES), *((*case, True) for case in IN_TRAINING_MODE)],
)
def test_a_step_is_the_one_that_serial_takes(
    name: str, replicas: int, batchsz: int, settings: dict[str, Value], training: bool, ranks: StandingRanks
) -> None:
    """In training mode gradients and running statistics are those of one device, too."""
    model = {key: value for key, value in settings.items() if key.startswith("model.")}
    # the second step of `bottleneck` in training mode, with gradients in the hundreds, multiplies rounding
    steps = 1 if training and model.get("model.embedding") == "bottleneck" else 2
    expected, expected_sums, _ = stepped(alone(), "serial", batchsz, model, training, steps)
    state, sums, whole = on_ranks(ranks, name, stepped, batchsz, settings, training, steps, replicas=replicas)
    assert_equal(state, expected)
    assert_equal(whole, expected)
    torch.testing.assert_close(sums, expected_sums, rtol=0, atol=TOLERANCE)
    first = build_relation(alone(), "serial", model).state_dict()
    assert sum(not torch.equal(value, first[name]) for name, value in expected.items()) > 10


def test_an_error_in_a_replica_thread_reaches_the_caller() -> None:
    strategy = build_relation(alone(2), "dp")
    batch = episode_batch(strategy, 2)
    support, query, episodes = batch.data
    with pytest.raises(RuntimeError, match="size"):
        strategy.forward_backward(replace(batch, data=(support[..., :1], query, episodes)))
    strategy.close()


class FrozenTask(Float64Task):
    """The first block and the batch norms are not trained."""

    def network(self) -> RelationNetwork:
        network = super().network()
        for name, value in network.named_parameters():
            value.requires_grad_(not (name.startswith("embedding.0.") or ".1." in name))
        return network


@pytest.mark.parametrize("name", ["dp", "ddp", "allreduce", "channel_split"])
def test_frozen_parameters_stay_and_the_others_move(name: str, ranks: StandingRanks) -> None:
    found, _, _ = on_ranks(ranks, name, stepped, 5, {}, False, 2, FrozenTask)
    assert_equal(found, stepped(alone(), "serial", 5, {}, kind=FrozenTask)[0])
    first = build_relation(alone(), "serial", kind=FrozenTask).state_dict()
    assert torch.equal(found["embedding.0.0.weight"], first["embedding.0.0.weight"])
    assert not torch.equal(found["embedding.2.0.weight"], first["embedding.2.0.weight"])


class UnusedTask(Float64Task):
    """The network has a branch that no forward pass takes."""

    def network(self) -> RelationNetwork:
        network = super().network()
        network.spare = nn.Parameter(torch.ones(2, dtype=torch.float64))
        return network


def refused(context: Context) -> str:
    with pytest.raises(RuntimeError) as error:
        stepped(context, "ddp", 5, {}, kind=UnusedTask)
    return str(error.value)


def test_ddp_steps_over_unused_parameters_where_told_to_look_for_them(ranks: StandingRanks) -> None:
    told: dict[str, Value] = {"parallel.ddp.find_unused_parameters": True}
    found, expected = (
        ranks(2, stepped, name, 5, settings, False, 2, UnusedTask)[0]
        for name, settings in (("ddp", told), ("allreduce", {}))
    )
    assert_equal(found, expected)
    assert "find_unused_parameters" in ranks(2, refused)


AUGMENTED: dict[str, Value] = {"augment.crop": 0.5, "augment.flip": True, "augment.jitter": 0.3}

COMPARED = ("ddp", "allreduce", "channel_split")
"""Strategies whose ranks are to hold the same parameters."""


def trained(context: Context, name: str, settings: dict[str, Value]) -> tuple[list[float], State, bool, bool]:
    """Losses of steps, the first in eval mode; the state; whether replicas agree.

    Last: whether they agree still after one bit of each vector has changed on the last rank.
    """
    strategy = build_relation(context, name, {**AUGMENTED, **settings}, RelationTask)
    strategy.set_learning_rate(0.01)
    batch, losses = episode_batch(strategy, 4, "uint8"), []
    for number in range(9):
        strategy.network.train(number > 0)
        sums = strategy.step(batch)
        assert not sums.requires_grad
        if context.world_size > 1:
            dist.all_reduce(sums)
        losses.append(float(sums[0]))
    strategy.synchronise_buffers()
    agree, state = strategy.replicas_agree(), strategy.state_dict()
    if context.world_size > 1 and strategy.shares_items:  # running statistics
        agree = agree and same_on_all_ranks(strategy.network.buffers(), context)
    if name in COMPARED and context.rank == context.world_size - 1:
        with torch.no_grad():
            for vector in (each for each in strategy.network.parameters() if each.dim() == 1):
                vector[0].nextafter_(torch.tensor(9.0))
    still = strategy.replicas_agree()
    strategy.close()
    return losses, state, agree, still


@pytest.fixture(scope="module")
def first_loss() -> float:
    return trained(alone(), "serial", {})[0][0]


@pytest.mark.parametrize("name", STRATEGIES)
def test_it_trains_and_its_state_is_that_of_one_network(
    name: str, ranks: StandingRanks, first_loss: float
) -> None:
    """All see the same augmented images, which are a function of the episodes."""
    losses, state, agree, still = on_ranks(ranks, name, trained, {})
    assert losses[0] == pytest.approx(first_loss, rel=1e-5)
    assert losses[-1] < losses[1]
    assert agree and still is (name not in COMPARED)
    build_relation(alone(), "serial", kind=RelationTask).load_state_dict(state)
    # every batch norm of the network has moved, wherever it lies
    assert sum(bool(value.any()) for name, value in state.items() if name.endswith("running_mean")) == 6


def test_half_precision_trains_in_every_thread() -> None:
    seen: set[tuple[int, torch.dtype]] = set()

    def note(module: nn.Module, inputs: object, output: torch.Tensor) -> None:
        if isinstance(module, nn.Conv2d):
            seen.add((threading.get_ident(), output.dtype))

    with register_module_forward_hook(note):
        losses, _, agree, _ = trained(alone(2), "dp", {"train.precision": "bf16"})
    assert losses[-1] < losses[1] and agree
    assert {dtype for _, dtype in seen} == {torch.bfloat16}
    assert len(seen) > 1, "more than one thread"


def test_fp16_trains_and_leaves_out_a_step_that_overflows() -> None:
    task, options = RelationTask(tiny_params(), NOWHERE), StepOptions(precision="fp16")
    strategy = build_strategy("serial", task, options, alone(), tiny_params().parallel)
    batch = episode_batch(strategy, 2, "float32")
    before = strategy.state_dict()
    strategy.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**60)
    assert strategy.step(batch)[2] == 0
    names = [name for name, _ in strategy.network.named_parameters()]
    assert all(torch.equal(strategy.state_dict()[name], before[name]) for name in names)
    strategy.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    losses = [float(strategy.step(batch)[0]) for _ in range(4)]
    assert losses[-1] < losses[0]


def test_scores_stay_in_full_precision_where_the_network_computes_in_half() -> None:
    seen: list[torch.dtype] = []
    half, full = (
        build_relation(alone(), "serial", {"train.precision": each}, RelationTask)
        for each in ("bf16", "fp32")
    )
    half.network.get_submodule("embedding.3.0").register_forward_hook(
        lambda module, args, output: seen.append(output.dtype)
    )
    data = episode_batch(half, 2, "float32").data
    scores = half.model(data)
    assert (seen, scores.dtype) == ([torch.bfloat16], torch.float32)
    assert len(scores.unique()) == scores.numel()  # with 8 bits some would tie
    torch.testing.assert_close(scores, full.model(data), rtol=0, atol=0.05)


class Synchronised(VectorTask):
    def network(self) -> nn.Module:
        return nn.Sequential(super().network(), nn.SyncBatchNorm(3))


def waits_for(context: Context) -> tuple[int, bool]:
    """How many ranks a synchronised batch norm waits for where one trains alone, and with others."""
    sizes = []
    for name, mine in (("serial", context.alone()), ("allreduce", context)):
        strategy = build_strategy(name, Synchronised(), StepOptions(), mine, tiny_params().parallel)
        layer = next(each for each in strategy.network.modules() if isinstance(each, nn.SyncBatchNorm))
        sizes.append(dist.get_world_size(layer.process_group))
    return sizes[0], sizes[1] == context.world_size


def test_a_rank_that_trains_alone_synchronises_batch_norm_with_nobody(ranks: StandingRanks) -> None:
    assert ranks(2, waits_for) == (1, True)


PARALLEL = tiny_params({f"parallel.{name}.enabled": True for name in STRATEGIES}).parallel


def said(
    name: str, replicas: int = 2, mode: str = "none", gpus: int | None = None, head: str = "relation"
) -> str:
    task = RelationTask(tiny_params({"model.head": head}), NOWHERE)
    placement = Placement("cpu" if gpus is None else "cuda", replicas, 1, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "device_count", lambda: gpus or 0)
        return unsupported_reason(name, task, StepOptions(compile=mode), placement, PARALLEL)


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
    two, usual = Placement("cpu", 2, 1, 2), StepOptions()
    able = {name for name in STRATEGIES if not unsupported_reason(name, VectorTask(), usual, two, PARALLEL)}
    assert able == {name for name, strategy in STRATEGIES.items() if strategy.shares_items}
    assert set(PARALLEL.strategies) == set(STRATEGIES)


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
    module = TaskModule(nn.Identity(), VectorTask(), StepOptions(precision="bf16"), "cpu")
    (batch,) = VectorTask().ready_batches(Plan(2, 2), 1, alone())
    assert torch.equal(module(batch.data), batch.data["x"])


def test_weights_of_images_change_their_memory_order_and_others_stay() -> None:
    network = channels_last(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv3d(4, 2, 3), nn.Linear(2, 2)))
    images, volumes, rows = (network.get_parameter(f"{layer}.weight") for layer in range(3))
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert volumes.is_contiguous() and rows.is_contiguous()
