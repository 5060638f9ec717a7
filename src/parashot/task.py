"""A training as the rest of the package sees it: network, data, loss, metric and optimizer.

Strategies (`parallel/`), the loop (`train/`) and the timed questions know `nn.Module` and `Task`, and nothing
of episodes. The Relation Network on episodes is one task (`tasks/relation.py`), the classifier that its
embedding is pretrained as another (`tasks/pretraining.py`).

    b items (episodes, images, rows of a table) of a batch
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only, tree_unflatten

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from parashot.parallel.channel_split import Cutter
    from parashot.parallel.context import Context


def even_share(count: int, rank: int, world_size: int) -> slice:
    """Slice of `count` consecutive things that belongs to `rank`, as even as possible."""
    base, extra = divmod(count, world_size)
    begin = rank * base + min(rank, extra)
    return slice(begin, begin + base + (rank < extra))


def mean_and_ci95(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Mean over items and half width of its 95% interval, 1.96 standard errors."""
    return float(values.mean()), float(1.96 * values.std(ddof=1) / math.sqrt(len(values)))


@dataclass(frozen=True)
class Plan:
    """Items of a budget that each step and each rank reads.

    Step s takes [s * batchsz, (s + 1) * batchsz), the last one what is left. A step's items are shared out
    over the ranks in order, as evenly as possible; a rank without any reads the step's first item with
    weight 0, so that collectives stay in step.
    """

    items: int
    batchsz: int
    rank: int = 0
    world_size: int = 1

    @property
    def steps(self) -> int:
        """Number of optimizer steps, the last one possibly smaller."""
        return -(-self.items // self.batchsz)

    def total(self, step: int) -> int:
        """Number of items of one step over all ranks."""
        return min(self.batchsz, self.items - step * self.batchsz)

    def share(self, step: int) -> range:
        """Item indices of this rank in one step; may be empty."""
        first, total = step * self.batchsz, self.total(step)
        return range(first, first + total)[even_share(total, self.rank, self.world_size)]

    def reads(self, step: int) -> range:
        """Item indices that this rank reads in one step: its share, or the stand-in."""
        first = step * self.batchsz
        return self.share(step) or range(first, first + 1)

    def weight(self, step: int) -> int:
        """1 where this rank has a share of the step, else 0."""
        return int(len(self.share(step)) > 0)


@dataclass(frozen=True)
class Batch:
    """Items of one optimizer step, or one rank's share of them.

    data: tensors [b, ...], nested in tuples, lists and dicts as the task likes; other leaves are handed on as
    they are. total: items of the whole step over all ranks. weight: 0 where a rank has no share and takes
    part with a stand-in, else 1.
    """

    data: Any
    total: int
    weight: int = 1

    def __len__(self) -> int:
        return len(self.tensors[0])

    @property
    def tensors(self) -> list[Tensor]:
        """Tensors of `data`, in a fixed order."""
        return [leaf for leaf in tree_leaves(self.data) if isinstance(leaf, Tensor)]

    def map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """Apply `function` to every tensor."""
        return replace(self, data=tree_map_only(Tensor, function, self.data))

    def to(self, device: torch.device) -> Batch:
        """Copy to `device`; from pinned memory without waiting for the copy."""
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> Batch:
        return self.map(Tensor.pin_memory)

    def parts(self, count: int) -> Iterator[Batch]:
        """Cut into `count` batches of consecutive items, or one for each item where there are fewer."""
        count = min(count, len(self))
        if count == 1:
            yield self
            return
        leaves, structure = tree_flatten(self.data)
        split = [leaf.tensor_split(count) if isinstance(leaf, Tensor) else [leaf] * count for leaf in leaves]
        for part in zip(*split, strict=True):
            yield replace(self, data=tree_unflatten(list(part), structure))


@dataclass(frozen=True)
class LayerCut:
    """A network in two parts, for `layer_split`: what only the task can say.

    parts: attributes of the network, in the order of the ranks that hold them. first: network and prepared
    data to maps [m, C, h, w]. second: network, maps and prepared data to outputs [b, ...].
    """

    parts: tuple[str, str]
    first: Callable[[nn.Module, Any], Tensor]
    second: Callable[[nn.Module, Tensor, Any], Tensor]


class Task(ABC):
    """A training: what is trained, on what, towards what.

    A task is pickled to every rank, so it holds settings and paths rather than tensors.
    """

    unit: ClassVar[str] = "item"
    """Name of one item, as messages say it."""

    remedy: ClassVar[str] = "set a smaller learning rate"
    """Advice against NaN and infinity."""

    @property
    @abstractmethod
    def batchsz(self) -> int:
        """Items per optimizer step, over all replicas."""

    @property
    @abstractmethod
    def items(self) -> int:
        """Budget of the training; steps follow from it and `batchsz`."""

    @property
    def averages_buffers(self) -> bool:
        """Whether running statistics are averaged over replicas in every step, by their shares of its items.

        Otherwise they are the first replica's, as in PyTorch.
        """
        return False

    @abstractmethod
    def network(self) -> nn.Module:
        """Build the network on the CPU, its first weights the same at every call."""

    @abstractmethod
    def batches(
        self, plan: Plan, context: Context, first: int = 0, *, in_process: bool = False
    ) -> Iterator[Batch]:
        """Yield this rank's batch of each step of `plan` from step `first` on.

        in_process: without worker processes.
        """

    def ready_batches(self, plan: Plan, steps: int, context: Context) -> list[Batch]:
        """Batches of the first `steps` steps, for timing without loading."""
        return list(islice(self.batches(plan, context, in_process=True), steps))

    def prepare(self, data: Any) -> Any:
        """Turn data as loaders deliver them into inputs, on the device and in full precision."""
        return data

    @abstractmethod
    def forward(self, network: nn.Module, data: Any) -> Tensor:
        """Outputs [b, ...] of prepared data: one row per item.

        Or the mean loss [], where that is all there is; `dp` takes it with loss_in_replica only.
        """

    @abstractmethod
    def loss(self, outputs: Tensor, data: Any) -> Tensor:
        """Loss of each item [b] or their mean [], from `outputs` and the data as loaders deliver them."""

    def metric(self, outputs: Tensor, data: Any) -> Tensor:
        """Metric of each item [b] or their mean [], without a graph; by default the loss."""
        return self.loss(outputs, data).detach()

    @abstractmethod
    def optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        """Build an optimizer of `network`, which may be one rank's part of the whole."""

    def learning_rates(self, steps: int) -> Callable[[int], float] | None:
        """Learning rate of each of `steps` steps; None leaves the optimizer's alone."""
        return None

    def validate(self, network: nn.Module, context: Context, *, last: bool) -> npt.NDArray[np.float64]:
        """Metric of each validation item; `last`: after the last step. Every rank calls it and gets all."""
        raise NotImplementedError

    def save(self, path: Path, state: Mapping[str, Tensor]) -> None:
        """Write the whole network's plain `state` as a model file, by default of safetensors."""
        from safetensors.torch import save_file

        save_file({name: value.contiguous() for name, value in state.items()}, path)

    def layer_cut(self) -> LayerCut | None:
        """Two parts of the network for `layer_split`, or None where it has none."""
        return None

    def channel_cut(self) -> Callable[[Any, Cutter], None] | None:
        """What cuts every layer of the network for `channel_split`, or None where nothing can."""
        return None
