"""Every way to split a step takes the step that `serial` takes.

On real processes, in float64, with batch norm in eval mode: a step of plain gradient descent with rate 1
moves each parameter by its gradient, so that states equal to 1e-10 are gradients equal to 1e-10.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from parashot.data.batches import Batch, Plan
from parashot.parallel.inputs import Inputs
from standing_ranks import StandingRanks
from torch import distributed as dist
from torch import nn

from parashot.data.augment import Augmentation
from parashot.model.losses import LOSSES, accuracy
from parashot.model.network import build_network
from parashot.parallel.context import Context, Placement
from parashot.parallel.registry import STRATEGIES, build_strategy, obstacle
from parashot.parallel.strategy import Objective, Strategy
from parashot.params import Head, Pairing, Params, load_params
from parashot.questions.strategies.trace import BytesSent, CollectiveCount

TOLERANCE = 1e-10
N_WAY, QUERIES, SIZE = 3, 6, 16
ALONE = Context(0, 1, 0, 1, Placement("cpu", 1, 1, 2))
State = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Case:
    """One way to take a step."""

    strategy: str
    ranks: int
    embedding: str = "conv4"
    pairing: Pairing = "split"
    batchsz: int = 5
    accumulate: int = 1
    settings: tuple[tuple[str, Any], ...] = ()
    augmented: bool = False
    head: Head = "relation"

    def __str__(self) -> str:
        told = [f"{key}={value}" for key, value in self.settings]
        parts = [self.strategy, str(self.ranks), self.embedding, self.pairing, f"b{self.batchsz}"]
        return "-".join([*parts, f"k{self.accumulate}", self.head, *told])


def params() -> Params:
    return load_params(Path(__file__).parents[2] / "params.yaml")


def build(context: Context, case: Case, dtype: torch.dtype | None = None) -> Strategy:
    settings = params()
    model = replace(settings.model, embedding=case.embedding, pairing=case.pairing, head=case.head)  # type: ignore[arg-type]
    dtype = dtype or (torch.float32 if case.augmented else torch.float64)
    network = build_network(model, seed=3).to(dtype).eval()
    varied = Augmentation(0.5, True, 0.3) if case.augmented else Augmentation()
    objective = Objective(
        LOSSES["cross_entropy"], accuracy, Inputs(SIZE, augmentation=varied), case.accumulate
    )
    section = replace(getattr(settings.parallel, case.strategy), **dict(case.settings))
    parallel = replace(settings.parallel, **{case.strategy: section})
    return build_strategy(
        case.strategy,
        network,
        objective,
        lambda network: torch.optim.SGD(network.parameters(), lr=1.0),
        context,
        parallel,
    )


def batch(strategy: Strategy, count: int, *, pixels: bool = False) -> Batch:
    """What this rank reads of a step of `count` episodes."""
    context, generator = strategy.context, torch.Generator().manual_seed(7)
    plan = strategy.plan(count, count, context.rank, context.ranks)
    reads = plan.reads(0)
    mine = slice(reads.start, reads.stop)
    support = torch.randn(count, N_WAY, 1, 3, SIZE, SIZE, dtype=torch.float64, generator=generator)
    query = torch.randn(count, QUERIES, 3, SIZE, SIZE, dtype=torch.float64, generator=generator)
    if pixels:
        support, query = ((each * 40 + 128).clamp(0, 255).to(torch.uint8) for each in (support, query))
    return Batch(support[mine], query[mine], torch.tensor(reads), count, plan.weight(0))


def stepped(context: Context, case: Case) -> tuple[State, torch.Tensor, State]:
    """The state after a step, the step's sums over all ranks, and the state of the whole network."""
    strategy = build(context, case)
    sums = strategy.step(batch(strategy, case.batchsz, pixels=case.augmented))
    if context.ranks > 1:
        dist.all_reduce(sums)
    state, whole = strategy.state_dict(), strategy.whole_network().state_dict()
    strategy.close()
    return state, sums, dict(whole)


CASES = [
    Case("allreduce", 2),
    Case("allreduce", 3, batchsz=2),
    Case("allreduce", 2, settings=(("flat", False),)),
    Case("allreduce", 2, accumulate=2),
    Case("fsdp", 2),
    Case("fsdp", 3, batchsz=2),
    Case("fsdp", 2, embedding="bottleneck", accumulate=2),
    Case("layer_split", 2),
    Case("layer_split", 2, settings=(("micro_batches", 5),)),
    Case("layer_split", 2, embedding="resnet12", pairing="concat", batchsz=1),
    Case("layer_split", 2, embedding="bottleneck", accumulate=2),
    Case("channel_split", 2),
    Case("channel_split", 3, pairing="concat", accumulate=2),
    Case("channel_split", 2, embedding="bottleneck"),
    Case("channel_split", 3, embedding="bottleneck", pairing="concat", batchsz=1),
    Case("channel_split", 2, embedding="resnet12", pairing="concat"),
    Case("channel_split", 3, embedding="resnet12"),
    Case("ddp", 2, settings=(("static_graph", True), ("gradient_as_bucket_view", False))),
    Case("ddp", 3, settings=(("find_unused_parameters", True),)),
    Case("ddp", 2, accumulate=2, settings=(("bucket_mb", 0.01),)),
    *(Case(name, 2, head="residual") for name in ("ddp", "allreduce", "fsdp", "layer_split")),
]


AUGMENTED = [
    Case(name, 1 if name == "serial" else 2, augmented=True)
    for name in ("serial", "layer_split", "channel_split", "fsdp", "allreduce")
]


Results = dict[Case, tuple[State, torch.Tensor, State]]


@pytest.fixture(scope="module")
def results(ranks: StandingRanks) -> Results:
    """What came of every case, and of serial for each of them."""
    serial = {serial_of(case) for case in CASES}
    every = [*CASES, *AUGMENTED, *serial]
    found: Results = {}
    for case in every:
        found[case] = stepped(ALONE, case) if case.ranks == 1 else ranks(case.ranks, stepped, case)
    return found


def serial_of(case: Case) -> Case:
    return replace(case, strategy="serial", ranks=1, accumulate=1, settings=())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_step_is_the_one_that_serial_takes(results: Results, case: Case) -> None:
    state, sums, whole = results[case]
    expected, expected_sums, _ = results[serial_of(case)]
    model = replace(params().model, embedding=case.embedding, head=case.head)  # type: ignore[arg-type]
    first = build_network(model, seed=3).double().state_dict()
    assert state.keys() == expected.keys()
    moved = [name for name, value in expected.items() if not torch.equal(value, first[name])]
    assert len(moved) > 10
    for name, value in expected.items():
        torch.testing.assert_close(state[name], value, rtol=0, atol=TOLERANCE)
        torch.testing.assert_close(whole[name], value, rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(sums, expected_sums, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("case", AUGMENTED[1:], ids=str)
def test_augmented_images_are_those_of_their_episodes(results: Results, case: Case) -> None:
    torch.testing.assert_close(results[case][1], results[AUGMENTED[0]][1], rtol=1e-5, atol=1e-5)


def frozen(context: Context, case: Case) -> State:
    """The state after a step that leaves the first block and the batch norms as they are."""
    strategy = build(context, case)
    for name, value in strategy.network.named_parameters():
        value.requires_grad_(not (name.startswith("embedding.0.") or ".1." in name))
    if case.strategy == "ddp":  # it looks at what is trained when it is made
        network = strategy.network
        strategy = build_strategy(
            "ddp",
            network,
            strategy.objective,
            lambda n: torch.optim.SGD(n.parameters(), lr=1.0),
            context,
            replace(params().parallel),
        )
    strategy.step(batch(strategy, case.batchsz))
    return strategy.state_dict()


@pytest.mark.parametrize("name", ["ddp", "allreduce"])
def test_frozen_parameters_stay_and_the_others_move(name: str, ranks: StandingRanks) -> None:
    found, alone = ranks(2, frozen, Case(name, 2)), frozen(ALONE, Case("serial", 1))
    first = build_network(params().model, seed=3).double().state_dict()
    assert torch.equal(found["embedding.0.0.weight"], first["embedding.0.0.weight"])
    assert not torch.equal(found["embedding.2.0.weight"], first["embedding.2.0.weight"])
    for key, value in alone.items():
        torch.testing.assert_close(found[key], value, rtol=0, atol=TOLERANCE)


def frozen_before(context: Context) -> list[str]:
    """Parameters that channel_split leaves frozen, of a network that comes with one."""
    network = build_network(params().model, seed=3)
    network.get_parameter("embedding.0.0.weight").requires_grad_(False)
    objective = Objective(LOSSES["cross_entropy"], accuracy, Inputs(SIZE))
    strategy = build_strategy(
        "channel_split",
        network,
        objective,
        lambda n: torch.optim.SGD(n.parameters(), lr=1.0),
        context,
        params().parallel,
    )
    return [name for name, value in strategy.network.named_parameters() if not value.requires_grad]


def test_what_is_cut_stays_frozen(ranks: StandingRanks) -> None:
    assert ranks(2, frozen_before) == ["embedding.0.0.weight"]


class _Unused(nn.Module):
    """A network with a branch that no forward pass takes."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.inner = network
        self.spare = nn.Linear(2, 2, dtype=torch.float64)

    def forward(self, support: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.inner(support, query)
        return scores


def with_unused(context: Context, strategy_name: str, find: bool) -> tuple[bool, str]:
    """Whether two steps with an unused branch went well, and what was said if not."""
    settings = params()
    section = replace(settings.parallel.ddp, find_unused_parameters=find)
    network: Any = _Unused(build_network(settings.model, seed=3).double().eval())
    objective = Objective(LOSSES["cross_entropy"], accuracy, Inputs(SIZE))
    strategy = build_strategy(
        strategy_name,
        network,
        objective,
        lambda n: torch.optim.SGD(n.parameters(), lr=1.0),
        context,
        replace(settings.parallel, ddp=section),
    )
    try:
        for _ in range(2):
            strategy.step(batch(strategy, 4))
    except RuntimeError as error:
        return False, str(error)
    return strategy.agree(), ""


def test_ddp_steps_over_unused_parameters_where_told_to_look_for_them(ranks: StandingRanks) -> None:
    ways = (("ddp", True), ("allreduce", True), ("ddp", False))
    found, by_hand, (went_well, said) = (ranks(2, with_unused, name, find) for name, find in ways)
    assert found == by_hand == (True, "")
    assert not went_well
    assert "find_unused_parameters" in said


def compressed(context: Context, compression: str) -> tuple[State, float]:
    """The state after a step in float32, and the bytes that one rank sends in the next."""
    strategy = build(context, Case("ddp", 2, settings=(("compression", compression),)), torch.float32)
    mine = batch(strategy, 4)
    mine = mine.with_tensors(mine.support.float(), mine.query.float(), mine.episodes)
    strategy.step(mine)
    state = strategy.state_dict()
    strategy.step(mine)
    with BytesSent(2) as sent:
        strategy.step(mine)
    return state, sent.bytes


def test_compressed_gradients_take_half_the_bytes_and_nearly_the_same_step(ranks: StandingRanks) -> None:
    plain, halved = (ranks(2, compressed, compression) for compression in ("none", "bf16"))
    assert halved[1] < 0.6 * plain[1]
    different = False
    for name, value in plain[0].items():
        torch.testing.assert_close(halved[0][name], value, rtol=0.02, atol=0.01)
        different |= not torch.equal(halved[0][name], value)
    assert different


def messages(context: Context, case: Case) -> tuple[dict[str, int], float, int]:
    """Collectives of a rank in its third step, the bytes it sends, and those of all parameters."""
    strategy = build(context, case, torch.float32)
    mine = batch(strategy, 4)
    mine = mine.with_tensors(mine.support.float(), mine.query.float(), mine.episodes)
    calls: dict[str, int] = {}
    for _ in range(2):
        strategy.step(mine)
    with BytesSent(context.ranks) as sent, CollectiveCount(calls):
        strategy.step(mine)
    parameters = strategy.whole_network().parameters()
    return calls, sent.bytes, sum(each.nbytes for each in parameters)


def test_each_strategy_exchanges_what_it_says(ranks: StandingRanks) -> None:
    cases = [
        Case("allreduce", 2),
        Case("allreduce", 2, settings=(("flat", False),)),
        Case("fsdp", 2),
        Case("layer_split", 2, settings=(("micro_batches", 4),)),
        Case("channel_split", 2),
    ]
    flat, by_parameter, fsdp, layers, channels = (ranks(2, messages, case) for case in cases)
    gradient_bytes = flat[2]
    assert flat[:2] == ({"allreduce_": 1}, gradient_bytes)  # each sends 2 (p - 1) / p of the gradients
    assert by_parameter[0]["allreduce_"] > 20
    assert by_parameter[1] == gradient_bytes
    assert fsdp[0]["_reduce_scatter_base_"] == 5  # four blocks and the head
    assert fsdp[0]["_allgather_base_"] >= 5
    assert layers[0] == {"send": 4, "recv_": 4}
    assert channels[0].keys() == {"allreduce_"}  # conv4's layers go in pairs: nothing is gathered


def test_what_a_rank_sends_grows_with_the_ring(ranks: StandingRanks) -> None:
    _, sent, gradient_bytes = ranks(3, messages, Case("allreduce", 3))
    assert sent == pytest.approx(4 / 3 * gradient_bytes)


def trained(context: Context, name: str) -> tuple[list[float], bool, int]:
    """Losses of steps in which batch norm moves its statistics, agreement, and the state's tensors."""
    strategy = build(context, Case(name, context.placement.replicas), torch.float32)
    strategy.network.train()
    strategy.optimizer.param_groups[0]["lr"] = 0.05
    mine = batch(strategy, 4, pixels=True)
    losses = []
    for _ in range(8):
        sums = strategy.step(mine)
        if context.ranks > 1:
            dist.all_reduce(sums)
        losses.append(float(sums[0]))
    strategy.synchronise_buffers()
    state = strategy.state_dict()
    build_network(params().model, seed=0).load_state_dict(state)
    moved = sum(name.endswith("running_mean") and bool(value.any()) for name, value in state.items())
    before = {name: value.clone() for name, value in state.items()}
    strategy.step(mine)
    strategy.load_state_dict(before)
    again = strategy.state_dict()
    same = all(torch.equal(again[name], value) for name, value in before.items())
    return losses, strategy.agree() and same, moved


@pytest.mark.parametrize("name", ["allreduce", "fsdp", "layer_split", "channel_split"])
def test_it_trains_and_its_state_comes_and_goes_as_plain_tensors(name: str, ranks: StandingRanks) -> None:
    losses, sound, moved = ranks(2, trained, name)
    assert losses[-1] < losses[0]
    assert sound
    assert moved == 6  # every batch norm of the network has moved, wherever it lies


def test_what_a_strategy_cannot_run_on_is_refused_in_words() -> None:
    def said(name: str, replicas: int) -> str:
        return obstacle(name, params(), Placement("cpu", replicas, 1, 2), 0)

    assert "2 or more devices" in said("fsdp", 1)
    assert "parallel.replicas=2" in said("layer_split", 3)
    assert "2 to 8 devices" in said("channel_split", 9)
    assert "2 to 8 devices" in said("channel_split", 1)
    assert [said(name, 2) for name in STRATEGIES] == [""] * len(STRATEGIES)
    compiled = replace(params(), train=replace(params().train, compile="default"))
    residual = replace(params(), model=replace(params().model, head="residual"))
    assert "cosine" in obstacle("channel_split", residual, Placement("cpu", 2, 1, 2), 0)
    words = [obstacle(name, compiled, Placement("cpu", 2, 1, 2), 0) for name in STRATEGIES]
    assert [not word for word in words] == [each.compiles for each in STRATEGIES.values()]
    section = replace(params().parallel.ddp, sync_batch_norm=True)
    synced = replace(params(), parallel=replace(params().parallel, ddp=section))
    assert "GPUs alone" in obstacle("ddp", synced, Placement("cpu", 2, 1, 2), 0)


def test_plans_say_who_reads_what() -> None:
    for name, strategy in STRATEGIES.items():
        plans = [strategy.plan(10, 5, rank, 2) for rank in range(2)]
        read = [list(plan.share(0)) for plan in plans]
        if name in {"layer_split", "channel_split"}:
            assert read == [[0, 1, 2, 3, 4]] * 2
        else:
            assert read == [[0, 1, 2], [3, 4]]
    assert Plan(10, 5) == STRATEGIES["layer_split"].plan(10, 5, 1, 2)
