"""A training of the user's own, out of a Python file, as a task.

The file has functions `network()`, `dataset()`, `loss(network, batch)` and `optimizer(parameters)`, and a
number `batchsz`; `collate(samples)` and `default` are optional. It imports nothing of this package. FILE:NAME
is a training of several in one file: a class NAME, or an object, with methods and a number of these names.
"""

from __future__ import annotations

import importlib
import random
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._pytree import tree_leaves
from torch.utils.data import Dataset, IterableDataset, default_collate

from parashot import lifetime
from parashot.data.loaders import host_batches, workers_of_rank
from parashot.errors import ParashotError, TaskError, one_line
from parashot.parallel.context import Context
from parashot.parsing import Switch, Text, Whole, parse
from parashot.records import record
from parashot.task import Batch, Plan, Task
from parashot.tasks.apart import put_together, take_apart
from parashot.tasks.handles import what_is_open

FUNCTIONS = ("network", "dataset", "loss", "optimizer")
NEEDED = f"functions {', '.join(FUNCTIONS)} and a number batchsz"
SEED = 0


@record
class Default:
    """What `default` in a user's file may set: how he trains now."""

    strategy: Text = "serial"
    workers: Annotated[Whole, Field(ge=0)] = 0  # of the whole machine
    precision: Text = "fp32"
    prefetch: Annotated[Whole, Field(ge=1)] = 2
    pin_memory: Switch = False


@dataclass(frozen=True)
class OwnTask(Task):
    """The training that `file`, as FILE or FILE:NAME, describes.

    Samples are read in an order that is shuffled anew in each pass, the same for every strategy, number of
    replicas and number of workers. A batch is a pair: indices of the samples [b], and what the user's loss
    gets. reads_apart: whether the data set has something open once a sample was read, such as a file, which
    a process must not share with workers forked from it; then there are two of it in one that does both.
    """

    file: Path
    batchsz: int = 1
    workers: int = 0  # of the whole machine, as its DataLoader has them
    prefetch: int = 2
    pin_memory: bool = False
    fused: bool = False  # the optimizer updates all parameters by one kernel
    items: int = 0
    cuttable: bool = True  # into batches of fewer samples
    random: bool = True  # else no dropout, and each sample is read with random numbers of its own
    batch_statistics: bool = True  # else batch norm uses its running statistics in training, too
    reads_apart: bool = False
    samples: int = 0  # of the data set

    remedy = "the loss is not finite: set a smaller learning rate"

    def network(self) -> nn.Module:
        with own_errors(self.file), torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            network: nn.Module = load_file(self.file).network()
        if not isinstance(network, nn.Module):
            raise TaskError(
                f"{self.file}: network() returns {type(network).__name__}; return a torch.nn.Module"
            )
        if not self.random:
            without_dropout(network)
        if not self.batch_statistics:
            without_batch_statistics(network)
        return network

    def batches(
        self, plan: Plan, context: Context, first: int = 0, *, in_process: bool = False
    ) -> Iterator[Batch]:
        workers = workers_of_rank(
            0 if in_process else self.workers, context.local_rank, context.local_world_size
        )
        steps = self.steps(plan, read_here=not workers)
        numbers = range(first, plan.steps)
        return host_batches(steps, numbers, workers, self.prefetch, pin_memory=self.pin_memory)

    def steps(self, plan: Plan, *, read_here: bool = False) -> StepsOfDataset:
        """The user's data set as one of steps; read_here: to be read in this process, not in workers."""
        collate = getattr(load_file(self.file), "collate", default_collate)
        dataset = load_dataset(self.file, read_here and self.reads_apart)
        return StepsOfDataset(dataset, collate, plan, self.file, self.random)

    def forward(self, network: nn.Module, data: Any) -> Tensor:
        """The user's loss: of each item [b], or their mean []. Raises `TaskError` where it is neither."""
        indices, samples = data
        items = len(indices)
        with own_errors(self.file):
            losses: Tensor = load_file(self.file).loss(network, put_together(samples))
        if not isinstance(losses, Tensor) or losses.shape not in {(), (items,)}:
            found = f"shape {[*losses.shape]}" if isinstance(losses, Tensor) else type(losses).__name__
            raise TaskError(
                f"{self.file}: loss returns {found} for a batch of {items}; return their mean, or one each"
            )
        return losses.to(torch.promote_types(losses.dtype, torch.float32))

    def loss(self, outputs: Tensor, data: Any) -> Tensor:
        """Return the losses, which the forward pass has computed."""
        return outputs

    def optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        with own_errors(self.file):
            optimizer: torch.optim.Optimizer = load_file(self.file).optimizer([*network.parameters()])
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TaskError(
                f"{self.file}: optimizer() returns {type(optimizer).__name__}; "
                "return one torch.optim.Optimizer"
            )
        if self.fused:
            for group in optimizer.param_groups:
                group["fused"] = True
            # as its constructor does: its kernels divide gradients by the scale of fp16 themselves
            vars(optimizer)["_step_supports_amp_scaling"] = True
        return optimizer


def without_dropout(network: nn.Module) -> None:
    """Switch dropout off in a network's layers, and in its layers of attention."""
    for module in network.modules():
        if isinstance(module, _DropoutNd):
            module.p = 0.0
        elif isinstance(getattr(module, "dropout", None), float):
            vars(module)["dropout"] = 0.0


def without_batch_statistics(network: nn.Module) -> None:
    """Keep a network's batch norms in eval mode, whatever the mode of the network."""
    for module in network.modules():
        if isinstance(module, _BatchNorm):
            module.eval()
            vars(module)["train"] = lambda mode=True: None


@dataclass
class StepsOfDataset(Dataset[Batch]):
    """A data set of samples as a data set of steps: item s is this rank's batch of step s of `plan`."""

    dataset: Any
    collate: Any
    plan: Plan
    file: Path
    random: bool = True

    def __getitem__(self, step: int) -> Batch:
        """Read and collate the samples of one step. Raises `TaskError` for an error in the user's code."""
        with own_errors(self.file):
            indices = self.indices(step)
            data = torch.tensor(indices), take_apart(self.collated(indices))
            return Batch(data, self.plan.total(step), self.plan.weight(step))

    def indices(self, step: int) -> list[int]:
        """The samples of this rank in one step."""
        count = len(self.dataset)
        found = list[int]()
        for epoch, items in groupby(self.plan.reads(step), key=lambda item: item // count):
            found += _order(count, epoch)[[item % count for item in items]].tolist()
        return found

    def collated(self, indices: Sequence[int]) -> Any:
        """Read samples, and collate them as the user does."""
        return self.collate(self.samples(indices))

    def samples(self, indices: Sequence[int]) -> Any:
        """Read samples, each with random numbers of its own where they are not to be random."""
        if self.random:
            return self._read(indices)
        samples = []
        for index in indices:
            with seeded(index):
                samples += self._read([index])
        return samples

    def _read(self, indices: Sequence[int]) -> Any:
        if hasattr(self.dataset, "__getitems__"):
            return self.dataset.__getitems__(indices)
        return [self.dataset[index] for index in indices]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed what draws random numbers, PyTorch, NumPy and Python; afterwards they go on as before."""
    numpy_state, state = np.random.get_state(), random.getstate()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(numpy_state)
            random.setstate(state)


@lru_cache(maxsize=2)
def _order(count: int, epoch: int) -> Tensor:
    """Order of the samples in a pass: int64 [count], as each of a rank's workers makes it."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(epoch))


def split_name(file: Path) -> tuple[Path, str]:
    """FILE and NAME of FILE:NAME; NAME is empty where there is none."""
    path, _, name = str(file).rpartition(":")
    return (Path(path), name) if path and name.isidentifier() else (file, "")


@lru_cache
def load_file(file: Path) -> Any:
    """What describes the training: the module that FILE is, or what it calls NAME, of a class an instance.

    Raises `TaskError` where there is none, where it fails, or where it lacks a function.
    """
    path, name = split_name(file)
    training: Any = _import_file(path)
    if name:
        training = getattr(training, name, None)
        if isinstance(training, type):
            with own_errors(file):
                training = training()
        if training is None:
            raise TaskError(f"{path}: nothing is called {name} there; name a class or an object in it")
    missing = [each for each in FUNCTIONS if not callable(getattr(training, each, None))]
    if missing:
        raise TaskError(f"{file}: no function {missing[0]}; it needs {NEEDED}")
    size = getattr(training, "batchsz", None)
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise TaskError(f"{file}: batchsz is {size!r}; set it to the number of samples of a step")
    return training


def _import_file(file: Path) -> ModuleType:
    """Import the user's file under its own name, so that processes that are sent its classes find them."""
    if not file.is_file():
        raise TaskError(f"{file}: no such file; name a Python file with {NEEDED}")
    if "." in file.stem:
        raise TaskError(f"{file}: Python cannot import it; give the file another name, without a dot")
    whole, name = file.resolve(), file.stem
    if str(whole.parent) not in sys.path:
        sys.path.insert(0, str(whole.parent))
    with own_errors(file):
        module = importlib.import_module(name)
    if Path(module.__file__ or "").resolve() != whole:
        raise TaskError(f"{file}: Python has another module called {name}; give the file another name")
    return module


@lru_cache
def load_dataset(file: Path, another: bool) -> Any:
    """Call the user's `dataset()`, once in a process; `another`: once more. `cache_clear` frees both."""
    with own_errors(file):
        return load_file(file).dataset()


def own_task(file: Path) -> OwnTask:
    """The training of a file, looked at: one step's batch is read. Raises `TaskError`."""
    file = file.absolute()  # the user's code may go to another folder
    task, dataset = OwnTask(file, load_file(file).batchsz), load_dataset(file, False)
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise TaskError(
            f"{file}: dataset() returns {type(dataset).__name__}; return one with __getitem__ and __len__"
        )
    with own_errors(file):
        count = len(dataset)
        if count < task.batchsz:
            raise TaskError(
                f"{file}: the data set has {count} samples and a batch {task.batchsz}; set a smaller batchsz"
            )
        steps = task.steps(Plan(task.batchsz, task.batchsz))
        batch = steps.collated(steps.indices(0))
    try:
        take_apart(batch)
    except Exception as error:  # of any kind: classes pickle themselves
        raise TaskError(
            f"{file}: a batch cannot be sent from a worker ({one_line(error)}); leave out of it what "
            "cannot be pickled"
        ) from error
    leaves = tree_leaves(batch)
    if any(isinstance(each, Tensor) and each.device.type != "cpu" for each in leaves):
        raise TaskError(
            f"{file}: samples lie on a GPU, where workers cannot make them; keep them on the CPU: loss() "
            "gets the batch on the device"
        )
    _check_new(task)
    cuttable = all(isinstance(each, Tensor) and [*each.shape[:1]] == [task.batchsz] for each in leaves)
    reads_apart = bool(what_is_open(dataset, hidden=True))
    if reads_apart:
        load_dataset.cache_clear()  # workers get another one, of which nothing was read
        if fault := what_is_open(load_dataset(file, False)):
            raise TaskError(
                f"{file}: dataset() opens what workers would share ({fault}); open it where it is first "
                "needed, in __getitem__"
            )
    return replace(task, cuttable=cuttable, reads_apart=reads_apart, samples=count)


def _check_new(task: OwnTask) -> None:
    """Raise `TaskError` where `network()` returns weights again that it has returned before."""
    first, second = ([*task.network().parameters()] for _ in range(2))
    if {id(each) for each in first} & {id(each) for each in second}:
        raise TaskError(
            f"{task.file}: network() returns the same weights at each call; make a new one in it, as every "
            "way to train begins with one"
        )


def own_default(file: Path) -> Default:
    """How the user trains now, as `default` in his file says. Raises `ParamsError`."""
    return parse(Default, getattr(load_file(file), "default", {}), f"{file}: default")


@contextmanager
def own_errors(file: Path) -> Iterator[None]:
    """Turn an error in the user's code into one line with its place in his files."""
    try:
        yield
    except ParashotError:
        raise
    except SyntaxError as error:
        raise TaskError(f"{error.filename}:{error.lineno}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        if isinstance(error, SystemExit) and frames[-1].filename == lifetime.__file__:
            raise  # a signal ends this process
        folder = file.resolve().parent
        files = (each for each in frames if not each.filename.startswith("<"))  # not <string> and the like
        own = [each for each in files if Path(each.filename).resolve().parent == folder]
        place = f"{own[-1].filename}:{own[-1].lineno}, in {own[-1].name}" if own else str(file)
        raise TaskError(f"{place}: {_in_words(error)}") from error


def _in_words(error: BaseException) -> str:
    """Class and message of an error, or what to do."""
    message = one_line(error)
    if isinstance(error, SystemExit):
        return f"it ends the program by exit({error}); put what does that into a function, or raise an error"
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error):
        return (
            "the memory is full; set a smaller batchsz or take a smaller network (one that a device cannot "
            "hold needs torch.distributed.fsdp.fully_shard, which is not measured without one process)"
        )
    if "backward through the graph a second time" in message:
        return "the loss goes back into the graph of an earlier step; detach() what is kept between steps"
    return f"{type(error).__name__}: {message}"
