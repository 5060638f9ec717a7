"""Everything that benchmarks call of parashot's training core: steps, loaders, replicas, whole trainings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import torch

from benchmarks.checkout import ROOT
from benchmarks.images import pack_noise
from benchmarks.outcome import ratio_of
from benchmarks.turns import BLOCKS, interleaved
from parashot.allocator import keep_freed_memory
from parashot.data.episode_dataset import Backend, EpisodeDataset, resident_batches, step_batch
from parashot.data.episodes import EpisodeSpec
from parashot.data.loaders import step_loader
from parashot.data.packed import PackedSplit, ResidentSplit
from parashot.hardware import usable_cores
from parashot.parallel.context import Context, Placement, control_group, wait_for_all
from parashot.parallel.launch import launch
from parashot.parallel.registry import build_strategy, step_options
from parashot.parallel.strategy import Strategy
from parashot.params import Params
from parashot.parsing import parse, read_yaml
from parashot.questions.results import load_results
from parashot.questions.statistics import Interval
from parashot.questions.strategies.measure import bench_strategies
from parashot.questions.strategies.records import StrategyResults
from parashot.questions.text import counted
from parashot.questions.timed import TimedStrategy
from parashot.recipes import Value, apply
from parashot.records import Provenance
from parashot.task import Batch, Plan
from parashot.tasks.relation import RelationTask
from parashot.train.job import episode_job
from parashot.train.run import train

T = TypeVar("T")
Embedding = Literal["conv4", "bottleneck", "resnet12"]

N_WAY, K_SHOT = 5, 1
"""5-way 1-shot, as the study."""

PREFETCH = 2
"""Batches that each loader worker keeps ready: torch's default."""

REPLICAS = 2
"""Replicas of DDP that are compared with serial."""

ENDLESS = 10**9
_PARAMS = ROOT / "params.yaml"


@dataclass(frozen=True)
class Workload:
    """One step: `batchsz` episodes with `k_query` query images per class, `image_size` pixels square."""

    embedding: Embedding
    image_size: int
    k_query: int
    batchsz: int

    @property
    def name(self) -> str:
        """Name as tables show it."""
        queries = counted(self.k_query, "query", "queries")
        return f"{self.embedding}, {self.image_size} px, {queries} per class, batchsz {self.batchsz}"

    @property
    def shape(self) -> str:
        """Name of its batches, which no network matters to."""
        return self.name.partition(", ")[2]

    @property
    def images(self) -> int:
        """Number of images of one step."""
        return self.batchsz * self.spec.images

    @property
    def batch_bytes(self) -> int:
        """uint8 pixels of one step."""
        return self.images * 3 * self.image_size**2

    @property
    def spec(self) -> EpisodeSpec:
        """Shape of its episodes."""
        return EpisodeSpec(N_WAY, K_SHOT, self.k_query)

    def params(self, settings: Mapping[str, Value] = MappingProxyType({})) -> Params:
        """params.yaml with this workload, squared error, pairing `split`, and further dotted keys.

        Raises `ParamsError`.
        """
        own: dict[str, Value] = {
            "episode.n_way": N_WAY,
            "episode.k_shot": K_SHOT,
            "episode.k_query": self.k_query,
            "model.embedding": self.embedding,
            "model.image_size": self.image_size,
            "model.pairing": "split",
            "train.episodes": self.batchsz,
            "train.batchsz": self.batchsz,
            "train.batch_per": "global",
            "train.loss": "mse",
            "train.learning_rate": 1e-3,
            "train.precision": "fp32",
            "train.compile": "none",
            "train.recompute": False,
            "train.accumulate": 1,
            "augment.crop": 1.0,
            "augment.flip": False,
            "augment.jitter": 0.0,
        }
        return params_with({**own, **settings})

    def strategy(
        self, name: str, context: Context, settings: Mapping[str, Value] = MappingProxyType({})
    ) -> Strategy:
        """Parashot's strategy `name` around a network of its own."""
        params = self.params(settings)
        task, options = RelationTask(params, Path()), step_options(params.train)
        return build_strategy(name, task, options, context, params.parallel)

    def batch(self, rank: int = 0, world_size: int = 1) -> Batch:
        """A rank's share of a step: random uint8 pixels, in memory as the loaders lay them out."""
        plan = Plan(self.batchsz, self.batchsz, rank, world_size)
        shape = (len(plan.reads(0)) * self.spec.images, self.image_size, self.image_size, 3)
        generator = torch.Generator().manual_seed(0)
        pixels = torch.randint(256, shape, dtype=torch.uint8, generator=generator)
        return step_batch(pixels.movedim(-1, -3), self.spec, plan, 0)


def device() -> torch.device:
    """Device that steps run on."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def serial_strategy(workload: Workload, settings: Mapping[str, Value]) -> Strategy:
    """Parashot's strategy of one replica, on all cores or the card; from now freed memory is kept."""
    keep_freed_memory()
    placement = Placement(device().type, 1, usable_cores(), usable_cores())
    return workload.strategy("serial", Context(0, 1, 0, 1, placement), settings)


def serial_step(workload: Workload, settings: Mapping[str, Value]) -> Callable[[], object]:
    """A training step of `serial_strategy` over one batch, uint8 in memory."""
    strategy, batch = serial_strategy(workload, settings), workload.batch()
    return lambda: strategy.step(batch)


def loader_batches(
    split: PackedSplit,
    workload: Workload,
    backend: Backend,
    workers: int,
    device: str = "cpu",
    steps: int = ENDLESS,
) -> Iterator[Batch]:
    """Batches of a split by parashot's loader, by default more than any measurement reads."""
    plan, size = Plan(steps * workload.batchsz, workload.batchsz), workload.image_size
    where = torch.device(device)
    if backend == "resident":
        return resident_batches(ResidentSplit(split, where), workload.spec, plan, 0, range(steps))
    dataset = EpisodeDataset(split, workload.spec, plan, 0, backend, size)
    return step_loader(dataset, range(steps), workers, PREFETCH, where)


def params_with(settings: Mapping[str, Value]) -> Params:
    """params.yaml of this checkout with dotted keys set. Raises `ParamsError`."""
    return parse(Params, apply(tree_of(_PARAMS), settings))


def tree_of(path: Path) -> dict[str, Any]:
    """A params.yaml of this checkout as a tree."""
    tree = read_yaml(path)
    assert isinstance(tree, dict)
    return tree


def whole_training(
    strategy: str, params: Params, packed: Path, out: Path, scratch: Path | None = None
) -> None:
    """Train as the stage does: validations, saved states below `scratch`, results in `out`."""
    train(episode_job(strategy, params, packed, out, scratch=scratch))


def strategy_bench(workload: Workload) -> StrategyResults:
    """Time serial and DDP on two replicas, on the CPU, as the stage `strategy-bench` does and records it."""
    settings: dict[str, Value] = {
        "parallel.device": "cpu",
        "parallel.replicas": REPLICAS,
        "parallel.dp.enabled": False,
        "parallel.bench.blocks": BLOCKS,
        "parallel.bench.steps": 1,
        "parallel.bench.warmup_steps": 1,
    }
    with TemporaryDirectory(prefix="parashot-") as folder:
        home = Path(folder)
        pack_noise(home / "packed", 640, workload.image_size)
        out = home / "results" / "strategies"
        bench_strategies(workload.params(settings), home / "packed", out, Provenance())
        results = load_results(home, (), partial=True).strategies
    assert results is not None
    return results


def in_ranks(function: Callable[..., T], device_type: str, ranks: int, *args: Any) -> T:
    """Call `function(rank, ranks, device, *args)` in a process per rank, and return what the first returns.

    `function` stands at the top of a module. Raises `DeviceError` in one line where a rank fails.
    """
    cores = usable_cores()
    placement = Placement(device_type, ranks, max(1, cores // ranks), cores)
    result = launch(_call_in_rank, placement, ranks, function, args)
    assert result is not None  # only other ranks that torchrun has started get nothing
    return result


def _call_in_rank(context: Context, function: Callable[..., T], args: Sequence[Any]) -> T:
    return function(context.rank, context.world_size, context.device, *args)


# --- DDP on two replicas, a thread each -----------------------------------------------------------------


@dataclass(frozen=True)
class Replicas:
    """Seconds per step by serial, DDP, and DDP without its exchange; item i of all of round i."""

    workload: Workload
    serial: Sequence[float]
    ddp: Sequence[float]
    apart: Sequence[float]

    @property
    def efficiency(self) -> Interval:
        """T_1 / (p T_p)."""
        return ratio_of(self.serial, self.ddp).scaled(1 / REPLICAS)

    @property
    def ceiling(self) -> Interval:
        """Efficiency without any exchange: what sharing the machine leaves of it."""
        return ratio_of(self.serial, self.apart).scaled(1 / REPLICAS)


def measure_replicas(workload: Workload, steps: int, blocks: int) -> Replicas:
    """Time blocks of `steps` steps in turn, in fp32 on the CPU, in one process per replica with one thread.

    Raises `DeviceError`.
    """
    placement = Placement("cpu", REPLICAS, threads_per_replica=1, cores=REPLICAS)
    seconds = launch(_measure_rank, placement, REPLICAS, workload, steps, blocks)
    assert seconds is not None  # only other ranks that torchrun has started get nothing
    return Replicas(workload, **seconds)


def _measure_rank(context: Context, workload: Workload, steps: int, blocks: int) -> dict[str, list[float]]:
    """Seconds on one rank; only the first one's count. The other sleeps while the first steps alone."""
    control = control_group(context)
    batch = workload.batch(context.rank, context.world_size)
    ddp = TimedStrategy(workload.strategy("ddp", context), [batch], 1)
    one = TimedStrategy(workload.strategy("serial", context.alone()), [workload.batch()], 1)

    def block(side: str) -> float:
        wait_for_all(control)
        if side == "serial":
            return one.seconds(steps) / steps if context.is_main else 0.0
        with ddp.strategy.without_exchange() if side == "apart" else nullcontext():
            return ddp.seconds(steps) / steps

    sides = ("serial", "ddp", "apart")
    seconds = interleaved({side: partial(block, side) for side in sides}, blocks, shown=context.is_main)
    wait_for_all(control)
    ddp.strategy.close()
    return seconds
