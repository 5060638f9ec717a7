"""Two small trainings: an MLP on vectors, which knows no episode, and the Relation Network in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from standing_ranks import StandingRanks
from tiny_data import tiny_params
from torch import Tensor, nn
from torch.nn import functional as F

from parashot.model.network import RelationNetwork
from parashot.parallel.context import Context, Placement
from parashot.parallel.registry import STRATEGIES, build_strategy, step_options
from parashot.parallel.strategy import Strategy
from parashot.parsing import Value
from parashot.task import Batch, Plan, Task
from parashot.tasks.relation import RelationTask
from parashot.train.loop import train_steps

TOLERANCE, RATE = 1e-10, 1e-3
NOWHERE = Path("no packed data")
State = dict[str, Tensor]


def alone(replicas: int = 1) -> Context:
    """One process, which drives `replicas` replicas where the strategy is `dp`."""
    return Context(0, 1, 0, 1, Placement("cpu", replicas, 1, 2))


def on_ranks(
    ranks: StandingRanks, name: str, function: Callable[..., Any], *args: object, replicas: int = 2
) -> Any:
    """Call `function(context, name, *args)` where `name` has its replicas: in one process or more."""
    if STRATEGIES[name].processes(replicas) == 1:
        return function(alone(replicas), name, *args)
    return ranks(replicas, function, name, *args)


@dataclass(frozen=True)
class VectorTask(Task):
    """Classes of vectors by an MLP: a batch is a dict, and everything is float64."""

    batchsz: int = 6
    items: int = 20

    unit = "vector"
    remedy = "set a smaller rate"

    def network(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()

    def batches(
        self, plan: Plan, context: Context, first: int = 0, *, in_process: bool = False
    ) -> Iterator[Batch]:
        for step in range(first, plan.steps):
            reads = plan.reads(step)
            yield Batch(_vectors(reads.start, reads.stop), plan.total(step), plan.weight(step))

    def forward(self, network: nn.Module, data: dict[str, Tensor]) -> Tensor:
        scores: Tensor = network(data["x"])
        return scores

    def loss(self, outputs: Tensor, data: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(outputs, data["y"], reduction="none")

    def metric(self, outputs: Tensor, data: dict[str, Tensor]) -> Tensor:
        return (outputs.detach().argmax(1) == data["y"]).double()

    def optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.RMSprop(network.parameters(), lr=0.05)

    def validate(self, network: nn.Module, context: Context, *, last: bool) -> npt.NDArray[np.float64]:
        data = _vectors(1000, 1040)
        with torch.no_grad():
            values: npt.NDArray[np.float64] = self.metric(network(data["x"]), data).numpy()
        return values


def _vectors(start: int, stop: int) -> dict[str, Tensor]:
    x = torch.sin(torch.arange(4 * start, 4 * stop, dtype=torch.float64) ** 2).view(-1, 4)
    return {"x": x, "y": x[:, :3].argmax(1)}


@dataclass(frozen=True)
class Float64Task(RelationTask):
    """The Relation Network in float64, with plain gradient descent; `training`: of its batch norms."""

    training: bool = False

    def network(self) -> RelationNetwork:
        return super().network().double().train(self.training)

    def optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(network.parameters(), lr=RATE)


def build_relation(
    context: Context,
    name: str,
    settings: Mapping[str, Value] | None = None,
    kind: type[RelationTask] = Float64Task,
    **options: Any,
) -> Strategy:
    """A strategy that trains the Relation Network on this rank."""
    params = tiny_params(settings)
    task = kind(params, NOWHERE, **options)
    return build_strategy(name, task, step_options(params.train), context, params.parallel)


def episode_batch(strategy: Strategy, count: int, kind: str = "float64") -> Batch:
    """This rank's share of a step of `count` random episodes; kind: float64, float32 or uint8."""
    plan, generator = strategy.plan(count, count, strategy.context), torch.Generator().manual_seed(7)
    reads = plan.reads(0)
    images = [
        torch.randn(count, *shape, 3, 16, 16, dtype=torch.float64, generator=generator)[
            reads.start : reads.stop
        ]
        for shape in ((2, 1), (4,))
    ]
    if kind == "uint8":
        images = [(40 * each + 128).clamp(0, 255) for each in images]
    support, query = (each.to(getattr(torch, kind)) for each in images)
    return Batch((support, query, torch.tensor(reads)), count, plan.weight(0))


def train_all(strategy: Strategy, items: int, *, alike: bool = False) -> tuple[State, list[float]]:
    """State and losses of a training on so many items; `alike`: every step has the first one's batch."""
    plan = strategy.plan(items, strategy.task.batchsz, strategy.context)
    batches = strategy.task.batches(plan, strategy.context)
    trace = train_steps(strategy, repeat(next(batches), plan.steps) if alike else batches, plan)
    state = strategy.state_dict()
    strategy.close()
    return state, trace.losses


def assert_equal(found: State, expected: State, atol: float = TOLERANCE * RATE) -> None:
    """States after steps by gradient descent whose gradients differ by 1e-10 at most."""
    torch.testing.assert_close(dict(found), dict(expected), rtol=0, atol=atol)
