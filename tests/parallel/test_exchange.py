"""What strategies send each other in a step: how many messages, of how many bytes, and when none."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from small_tasks import State, alone, assert_equal, build_relation, episode_batch
from standing_ranks import StandingRanks
from torch.utils._python_dispatch import TorchDispatchMode

from parashot.parallel.context import Context
from parashot.parallel.exchange import sum_in_one_message
from parashot.parallel.strategy import Strategy
from parashot.parsing import Value
from parashot.questions.strategies.trace import Collectives
from parashot.tasks.relation import RelationTask


def messages(context: Context, name: str, settings: dict[str, Value]) -> tuple[dict[str, int], float, int]:
    """Collectives of a rank in its third step, the bytes it sends, and those of all parameters."""
    strategy = build_relation(context, name, settings, RelationTask)
    batch = episode_batch(strategy, 6, "float32")
    for _ in range(2):  # DDP agrees on its buckets at the start of its second step
        strategy.step(batch)
    with Collectives(context.world_size) as sent:
        strategy.step(batch)
    return sent.calls, sent.bytes, sum(each.nbytes for each in strategy.whole_network().parameters())


def test_each_strategy_exchanges_what_it_says(ranks: StandingRanks) -> None:
    """Gradients once in a step, however many parts it has; test_measure_strategies.py has steps of one."""

    def of(name: str, parts: int = 3, count: int = 2, **settings: Any) -> tuple[dict[str, int], float, int]:
        turned = {f"parallel.{name}.{key}": value for key, value in settings.items()}
        turned |= {"train.accumulate": parts, "model.norm_episodes": 0}
        found: tuple[dict[str, int], float, int] = ranks(count, messages, name, turned)
        return found

    calls, sent, gradient_bytes = of("allreduce")
    assert (calls, sent) == ({"allreduce_": 1}, gradient_bytes)  # each sends 2 (p - 1) / p of the gradients
    assert of("allreduce", count=4)[1] == pytest.approx(1.5 * gradient_bytes)
    calls, sent, _ = of("ddp")
    assert calls["allreduce_"] == 1 and gradient_bytes <= sent < 1.1 * gradient_bytes
    assert calls["broadcast_"] == 2  # of running statistics and their counts, as PyTorch does
    assert of("ddp", compression="bf16")[1] < 0.6 * sent
    assert of("fsdp")[0]["_reduce_scatter_base_"] == 5  # four blocks and the head
    assert of("layer_split", parts=1, micro_batches=3)[0] == {"send": 3, "recv_": 3}
    # conv4's layers go in pairs: nothing is gathered
    assert of("channel_split", parts=1)[0].keys() == {"allreduce_"}


def with_and_without(context: Context) -> list[dict[str, int]]:
    """Collectives of one step each: as usual, without the exchange, and as usual again."""
    strategy = build_relation(context, "ddp", kind=RelationTask)
    batch, found = episode_batch(strategy, 4, "float32"), []
    for _ in range(2):
        strategy.step(batch)
    for within in (nullcontext(), strategy.without_exchange(), nullcontext()):
        with within, Collectives(context.world_size) as counted:
            strategy.step(batch)
        found.append(counted.calls)
    return found


def test_steps_without_exchange_exchange_nothing_and_steps_after_them_everything(
    ranks: StandingRanks,
) -> None:
    usual, without, again = ranks(2, with_and_without)
    assert usual["allreduce_"] >= 2  # gradients, and running statistics
    assert without == {}
    assert again == usual


def lone_step(context: Context, name: str) -> State | None:
    """What a step by one process of several leaves; None in the others."""
    mine = context.first_ranks(1)
    if mine is None:
        return None
    strategy = build_relation(mine, name)
    strategy.step(episode_batch(strategy, 3))
    return strategy.state_dict()


@pytest.mark.parametrize("name", ["serial", "ddp", "allreduce"])
def test_one_process_of_several_trains_by_itself(name: str, ranks: StandingRanks) -> None:
    """As where a batch feeds one replica of `ddp`, and another strategy needs two processes."""
    expected = lone_step(alone(), "serial")
    assert expected is not None
    assert_equal(ranks(2, lone_step, name), expected)


def summed(context: Context) -> list[torch.Tensor]:
    """A sum over ranks of a coarse and a fine number, in one message."""
    both = [torch.full((), 1.0, dtype=torch.bfloat16), torch.full((), 1.001, dtype=torch.float64)]
    sum_in_one_message(both, context)
    return both


def test_numbers_of_two_precisions_are_summed_in_the_finer_one(ranks: StandingRanks) -> None:
    coarse, fine = ranks(2, summed)
    assert (coarse.dtype, float(coarse)) == (torch.bfloat16, 2.0)
    assert float(fine) == 2.002


class _HostReads(TorchDispatchMode):
    """Counts what would make the host wait for a GPU: reading a number out of a tensor."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        self.count += name in {"_local_scalar_dense", "item", "nonzero", "masked_select", "is_nonzero"}
        return func(*args, **(kwargs or {}))


def test_no_step_reads_a_number_from_the_device() -> None:
    settings: dict[str, Value] = {"train.precision": "bf16", "augment.crop": 0.5, "augment.flip": True}
    strategy: Strategy = build_relation(alone(), "serial", settings, RelationTask)
    batch = episode_batch(strategy, 2, "uint8")
    strategy.step(batch)
    with _HostReads() as reads:
        strategy.step(batch)
    assert reads.count == 0
    with reads:
        torch.ones(1).item()
    assert reads.count == 1
