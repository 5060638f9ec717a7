"""Every strategy computes what `serial` computes.

On real processes, in float64, with batch norm in eval mode.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from parashot.data.loaders import Batch, Plan
from parashot.model.losses import LOSSES, accuracy
from parashot.model.network import build_network
from parashot.parallel.context import Context, Placement
from parashot.parallel.launch import launch
from parashot.parallel.registry import STRATEGIES, build_strategy
from parashot.parallel.strategy import Objective, Strategy
from parashot.params import Params, load_params
from parashot.study.anatomy import CollectiveCount

TOLERANCE = 1e-10
N_WAY, QUERIES, SIZE = 3, 6, 16
Gradients = dict[str, torch.Tensor]


def params() -> Params:
    return load_params(Path(__file__).parents[2] / "params.yaml")


def episodes(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    support = torch.randn(count, N_WAY, 1, 3, SIZE, SIZE, dtype=torch.float64, generator=generator)
    query = torch.randn(count, QUERIES, 3, SIZE, SIZE, dtype=torch.float64, generator=generator)
    return support, query


def build(
    name: str, context: Context, loss_in_replica: bool = True, dtype: torch.dtype = torch.float64
) -> Strategy:
    settings = params()
    network = build_network(settings.model, seed=3).to(dtype).eval()
    objective = Objective(LOSSES["cross_entropy"], accuracy, SIZE)
    parallel = settings.parallel
    object.__setattr__(parallel.dp, "loss_in_replica", loss_in_replica)
    return build_strategy(name, network, objective, lambda p: torch.optim.SGD(p, lr=0.1), context, parallel)


def gradients(strategy: Strategy, batchsz: int) -> tuple[Gradients, torch.Tensor]:
    """Gradients of one step over `batchsz` episodes, and the sums the step returns."""
    context = strategy.context
    plan = Plan(batchsz, batchsz, context.rank, context.ranks)
    share = plan.share(0)
    support, query = episodes(batchsz)
    mine = share or range(1)
    chosen = slice(mine.start, mine.stop)
    batch = Batch(support[chosen], query[chosen], batchsz, int(len(share) > 0))
    strategy.optimizer.zero_grad()
    sums = strategy.forward_backward(batch.support, batch.query, batch)
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
def test_ddp_equals_serial_where_ranks_do_not_divide_the_batch(replicas: int) -> None:
    sizes = [6, 5, 1]  # even, uneven, and fewer episodes than ranks
    results = launch(ddp_gradients, Placement("cpu", replicas, 1, 2), replicas, sizes)
    assert results is not None
    for size, found in zip(sizes, results, strict=True):
        assert_equal(found, serial_gradients(size))


def test_steps_without_exchange_exchange_nothing_and_steps_after_them_everything() -> None:
    usual, without, again = launch(ddp_collectives, Placement("cpu", 2, 1, 2), 2)
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
        strategy.forward_backward(support[..., :1], query, Batch(support, query, 2, 1))
    strategy.close()


@pytest.mark.parametrize("name", ["serial", "dp"])
def test_a_step_keeps_no_graph_and_its_state_loads_anywhere(name: str) -> None:
    strategy = build(name, Context(0, 1, 0, 1, Placement("cpu", 2, 1, 2)), dtype=torch.float32)
    support, query = episodes(2)
    sums = strategy.step(Batch(support.float(), query.float(), 2, 1))
    assert not sums.requires_grad
    state = strategy.state_dict()
    assert not any("module" in key.split(".") for key in state)
    build_network(params().model, seed=0).load_state_dict(state)
    strategy.close()


def test_every_section_of_params_has_its_strategy() -> None:
    assert set(params().parallel.strategies) == set(STRATEGIES)
