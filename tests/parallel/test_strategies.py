"""Every strategy computes what `serial` computes.

On real processes, in float64, with batch norm in eval mode.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from parashot.data.batches import Batch, Plan
from parashot.parallel.inputs import Inputs
from standing_ranks import StandingRanks
from torch.utils._python_dispatch import TorchDispatchMode

from parashot.data.augment import Augmentation
from parashot.model.losses import LOSSES, accuracy
from parashot.model.network import build_network
from parashot.parallel.context import Context, Placement
from parashot.parallel.registry import STRATEGIES, build_strategy
from parashot.parallel.strategy import Objective, Strategy
from parashot.params import Params, load_params
from parashot.questions.strategies.trace import CollectiveCount

TOLERANCE = 1e-10
N_WAY, QUERIES, SIZE = 3, 6, 16
INPUTS = Inputs(SIZE)
ALONE = Context(0, 1, 0, 1, Placement("cpu", 2, 1, 2))
"""One process, which drives two replicas where the strategy is `dp`."""

Gradients = dict[str, torch.Tensor]


def params() -> Params:
    return load_params(Path(__file__).parents[2] / "params.yaml")


def episodes(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    support = torch.randn(count, N_WAY, 1, 3, SIZE, SIZE, dtype=torch.float64, generator=generator)
    query = torch.randn(count, QUERIES, 3, SIZE, SIZE, dtype=torch.float64, generator=generator)
    return support, query


def build(
    name: str,
    context: Context,
    loss_in_replica: bool = True,
    dtype: torch.dtype = torch.float64,
    accumulate: int = 1,
    inputs: Inputs = INPUTS,
) -> Strategy:
    settings = params()
    network = build_network(settings.model, seed=3).to(dtype).eval()
    objective = Objective(LOSSES["cross_entropy"], accuracy, inputs, accumulate)
    parallel = settings.parallel
    object.__setattr__(parallel.dp, "loss_in_replica", loss_in_replica)
    return build_strategy(
        name, network, objective, lambda n: torch.optim.SGD(n.parameters(), lr=0.1), context, parallel
    )


def gradients(strategy: Strategy, batchsz: int) -> tuple[Gradients, torch.Tensor]:
    """Gradients of one step over `batchsz` episodes, and the sums the step returns."""
    context = strategy.context
    plan = Plan(batchsz, batchsz, context.rank, context.ranks)
    share = plan.share(0)
    support, query = episodes(batchsz)
    mine = share or range(1)
    chosen = slice(mine.start, mine.stop)
    batch = Batch(support[chosen], query[chosen], torch.tensor(mine), batchsz, int(len(share) > 0))
    strategy.optimizer.zero_grad()
    sums = strategy.forward_backward(batch)
    named = strategy.network.named_parameters()
    return {name: value.grad.clone() for name, value in named if value.grad is not None}, sums


def ddp_gradients(context: Context, sizes: list[int]) -> list[tuple[Gradients, torch.Tensor]]:
    strategy = build("ddp", context)
    results = []
    for size in sizes:
        found, sums = gradients(strategy, size)
        torch.distributed.all_reduce(sums)
        results.append((found, sums))
    return results


def ddp_collectives(context: Context) -> list[dict[str, int]]:
    """Collectives of one step each: as usual, without the exchange, and as usual again."""
    strategy = build("ddp", context)
    strategy.network.train()
    for _ in range(2):  # DDP agrees on its buckets at the start of its second step
        gradients(strategy, 4)
    found = []
    for synchronised in (True, False, True):
        counted: dict[str, int] = {}
        with nullcontext() if synchronised else strategy.without_exchange(), CollectiveCount(counted):
            gradients(strategy, 4)
        found.append(counted)
    return found


def serial_gradients(batchsz: int) -> tuple[Gradients, torch.Tensor]:
    return gradients(build("serial", Context(0, 1, 0, 1, Placement("cpu", 1, 1, 1))), batchsz)


def assert_equal(found: tuple[Gradients, torch.Tensor], expected: tuple[Gradients, torch.Tensor]) -> None:
    assert found[0].keys() == expected[0].keys()
    assert len(found[0]) > 10
    for name, value in expected[0].items():
        assert value.abs().max() > 0 or "bias" in name
        torch.testing.assert_close(found[0][name], value, rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(found[1], expected[1], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("replicas", [2, 3])
def test_ddp_equals_serial_where_ranks_do_not_divide_the_batch(replicas: int, ranks: StandingRanks) -> None:
    sizes = [6, 5, 1]  # even, uneven, and fewer episodes than ranks
    results = ranks(replicas, ddp_gradients, sizes)
    for size, found in zip(sizes, results, strict=True):
        assert_equal(found, serial_gradients(size))


def test_steps_without_exchange_exchange_nothing_and_steps_after_them_everything(
    ranks: StandingRanks,
) -> None:
    usual, without, again = ranks(2, ddp_collectives)
    assert usual["allreduce_"] >= 1
    assert usual["broadcast_"] >= 1
    assert without == {}
    assert again == usual


@pytest.mark.parametrize("loss_in_replica", [True, False])
@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_dp_equals_serial(replicas: int, loss_in_replica: bool) -> None:
    strategy = build("dp", Context(0, 1, 0, 1, Placement("cpu", replicas, 1, 2)), loss_in_replica)
    for size in (6, 5, 1):
        assert_equal(gradients(strategy, size), serial_gradients(size))
    strategy.close()


def test_dp_copies_parameters_out_each_step() -> None:
    strategy = build("dp", Context(0, 1, 0, 1, Placement("cpu", 2, 1, 2)))
    gradients(strategy, 4)
    with torch.no_grad():
        for value in strategy.network.parameters():
            value.mul_(0.5)
    changed, _ = gradients(strategy, 4)
    reference = build("serial", Context(0, 1, 0, 1, Placement("cpu", 1, 1, 1)))
    reference.network.load_state_dict(strategy.network.state_dict())
    expected, _ = gradients(reference, 4)
    for name, value in expected.items():
        torch.testing.assert_close(changed[name], value, rtol=0, atol=TOLERANCE)
    strategy.close()


def test_an_error_in_a_replica_thread_reaches_the_caller() -> None:
    strategy = build("dp", Context(0, 1, 0, 1, Placement("cpu", 2, 1, 2)))
    with pytest.raises(RuntimeError):
        support, query = episodes(2)
        strategy.forward_backward(Batch(support[..., :1], query, torch.arange(2), 2, 1))
    strategy.close()


@pytest.mark.parametrize("name", ["serial", "dp"])
def test_a_step_keeps_no_graph_and_its_state_loads_anywhere(name: str) -> None:
    strategy = build(name, Context(0, 1, 0, 1, Placement("cpu", 2, 1, 2)), dtype=torch.float32)
    support, query = episodes(2)
    sums = strategy.step(Batch(support.float(), query.float(), torch.arange(2), 2, 1))
    assert not sums.requires_grad
    state = strategy.state_dict()
    assert not any("module" in key.split(".") for key in state)
    build_network(params().model, seed=0).load_state_dict(state)
    strategy.close()


def test_every_section_of_params_has_its_strategy() -> None:
    assert set(params().parallel.strategies) == set(STRATEGIES)


def batch_of(count: int, context: Context) -> Batch:
    plan = Plan(count, count, context.rank, context.ranks)
    support, query = episodes(count)
    reads = plan.reads(0)
    mine = slice(reads.start, reads.stop)
    return Batch(support[mine], query[mine], torch.tensor(reads), count, plan.weight(0))


def stepped(
    context: Context, name: str, count: int, accumulate: int
) -> tuple[dict[str, torch.Tensor], torch.Tensor, dict[str, int]]:
    """Parameters after a step, its sums over all ranks, and the collectives it called."""
    strategy = build(name, context, accumulate=accumulate)
    batch = batch_of(count, context)
    strategy.step(batch)  # DDP agrees on its buckets at the start of its second step
    calls: dict[str, int] = {}
    with CollectiveCount(calls):
        sums = strategy.step(batch)
    if context.ranks > 1:
        torch.distributed.all_reduce(sums)
    state = strategy.state_dict()
    strategy.close()
    return state, sums, calls


@pytest.mark.parametrize("accumulate", [2, 3, 7])
@pytest.mark.parametrize("name", ["serial", "dp", "ddp"])
def test_k_parts_of_a_step_equal_one_step(name: str, accumulate: int, ranks: StandingRanks) -> None:
    """Accumulated gradients are those of one batch of k times the size, whoever computes them."""
    whole = stepped(ALONE, "serial", 7, 1)
    parts = ranks(2, stepped, name, 7, accumulate) if name == "ddp" else stepped(ALONE, name, 7, accumulate)
    for key, value in whole[0].items():
        torch.testing.assert_close(parts[0][key], value, rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(parts[1], whole[1], rtol=0, atol=TOLERANCE)


def test_gradients_are_exchanged_once_per_step_however_many_parts_it_has(ranks: StandingRanks) -> None:
    once, thrice = (ranks(2, stepped, "ddp", 6, parts) for parts in (1, 3))
    assert once[2]["allreduce_"] == thrice[2]["allreduce_"] >= 1


def test_scores_stay_in_full_precision_where_the_network_computes_in_half() -> None:
    context = Context(0, 1, 0, 1, Placement("cpu", 1, 1, 1))
    seen: list[torch.dtype] = []
    strategy = build("serial", context, dtype=torch.float32, inputs=Inputs(SIZE, bfloat16=True))
    strategy.network.get_submodule("embedding.3.0").register_forward_hook(
        lambda module, args, output: seen.append(output.dtype)
    )
    scores = strategy.model(*(each.float() for each in episodes(2)), torch.arange(2))
    assert seen == [torch.bfloat16]
    assert scores.dtype == torch.float32
    assert len(scores.unique()) == scores.numel()  # with 8 bits some would tie
    full = build("serial", context, dtype=torch.float32)
    torch.testing.assert_close(
        scores, full.model(*(each.float() for each in episodes(2)), torch.arange(2)), rtol=0, atol=0.05
    )


@pytest.mark.parametrize("name", ["serial", "dp"])
def test_half_precision_and_augmentation_train(name: str) -> None:
    inputs = Inputs(SIZE, bfloat16=True, augmentation=Augmentation(0.5, True, 0.3), seed=1)
    strategy = build(name, Context(0, 1, 0, 1, Placement("cpu", 2, 1, 2)), dtype=torch.float32, inputs=inputs)
    strategy.network.train()
    generator = torch.Generator().manual_seed(1)
    support = torch.randint(0, 256, (4, N_WAY, 1, 3, 20, 20), dtype=torch.uint8, generator=generator)
    query = torch.randint(0, 256, (4, QUERIES, 3, 20, 20), dtype=torch.uint8, generator=generator)
    batch = Batch(support, query, torch.arange(4), 4, 1)
    losses = [float(strategy.step(batch)[0]) for _ in range(12)]
    assert losses[-1] < losses[0]
    strategy.close()


def test_augmented_images_are_those_of_their_episodes_for_every_strategy() -> None:
    """DataParallel's replicas see what one process sees: augmentation is a function of the episode."""
    inputs = Inputs(SIZE, augmentation=Augmentation(0.5, True, 0.3), seed=1)
    generator = torch.Generator().manual_seed(1)
    support = torch.randint(0, 256, (5, N_WAY, 1, 3, 20, 20), dtype=torch.uint8, generator=generator)
    query = torch.randint(0, 256, (5, QUERIES, 3, 20, 20), dtype=torch.uint8, generator=generator)
    batch = Batch(support, query, torch.arange(3, 8), 5, 1)
    sums = []
    for name in ("serial", "dp"):
        context = Context(0, 1, 0, 1, Placement("cpu", 2, 1, 2))
        strategy = build(name, context, dtype=torch.float32, inputs=inputs)
        sums.append(strategy.forward_backward(batch))
        sums.append(strategy.forward_backward(batch._replace(episodes=torch.arange(5))))
        strategy.close()
    torch.testing.assert_close(sums[0], sums[2], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(sums[1], sums[3], rtol=1e-5, atol=1e-5)
    assert (sums[0] - sums[1]).abs().max() > 1e-3  # other episodes, other images


class _HostReads(TorchDispatchMode):
    """Counts what would make the host wait for a GPU: reading a number out of a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        self.count += name in {"_local_scalar_dense", "item", "nonzero", "masked_select", "is_nonzero"}
        return func(*args, **(kwargs or {}))


def test_no_step_reads_a_number_from_the_device() -> None:
    inputs = Inputs(SIZE, bfloat16=True, augmentation=Augmentation(0.5, True, 0.3))
    strategy = build(
        "serial", Context(0, 1, 0, 1, Placement("cpu", 1, 1, 1)), dtype=torch.float32, inputs=inputs
    )
    strategy.network.train()
    support, query = episodes(2)
    pixels = ((each * 40 + 128).clamp(0, 255).to(torch.uint8) for each in (support, query))
    batch = Batch(*pixels, torch.arange(2), 2, 1)
    strategy.step(batch)
    with _HostReads() as reads:
        strategy.step(batch)
    assert reads.count == 0
    with _HostReads() as reads:
        torch.ones(1).item()
    assert reads.count == 1
