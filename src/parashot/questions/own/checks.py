"""Checks of the user's training before it is timed.

Do all strategies compute the gradient of one process, of all parameters? Is the graph of a step kept after
it, so that memory grows in every step? Are samples random anew in each worker, and does every rank have the
same ones?
"""

from __future__ import annotations

import gc
import hashlib
import math
import pickle
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from textwrap import shorten
from typing import Any
from weakref import ReferenceType, ref

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_leaves
from torch.utils.data import Dataset

from parashot.data.loaders import host_batches
from parashot.errors import TaskError, one_line
from parashot.parallel.context import Context, resolve_placement
from parashot.parallel.exchange import from_all_ranks
from parashot.parallel.launch import is_of_a_peer, launch_apart
from parashot.parallel.registry import STRATEGIES, build_strategy
from parashot.parallel.strategy import StepOptions
from parashot.params import ParallelParams
from parashot.questions.own.records import GradientCheck
from parashot.questions.strategies.equality import difference, gradient, of_parameters
from parashot.questions.text import counted
from parashot.questions.ways.measure import for_ways
from parashot.questions.ways.records import SkippedWay, Way
from parashot.task import Batch, Plan
from parashot.tasks.apart import LEAF_CLASSES, Apart, take_apart
from parashot.tasks.own import OwnTask, StepsOfDataset, own_errors

SAME = 1e-6
"""Largest relative difference of float64 gradients that is rounding: sums in another order."""

NEARLY = 1e-3
"""The same in float32, of a network that cannot run in float64."""

PLAIN_STEP = StepOptions(channels_last=False)
"""As scripts compute it: some networks cannot have their maps in another memory order."""

COMPARED = 4
"""Samples per replica whose gradient is compared first: a whole batch in float64 can take minutes."""

LONGEST_REASON = 200
"""Of a strategy that is skipped: torch prints whole networks in some messages."""

STEPS = 3
"""Steps by one process: a graph that is still there two steps later is kept for good."""

READINGS = 16
"""Readings of a sample: a random flip alone is the same in so many of two workers once in 65536 times."""


@dataclass(frozen=True)
class FirstStep:
    """What the first steps by one process show.

    unused: names of parameters that get no gradient. keeps_graph: whether the first step's is there later on.
    can_be_wrapped: whether the loss does no more with the network than call it. same_in_workers: of
    `repeats_in_workers`.
    """

    unused: tuple[str, ...]
    has_batch_norm: bool
    keeps_graph: bool = False
    can_be_wrapped: bool = True
    same_in_workers: bool = False


@dataclass(frozen=True)
class Compared:
    """What ranks have in common.

    gradients: of each strategy but those that are skipped. repeats: whether one process computes the same
    gradient twice. same_samples: whether all ranks read the same ones at the same places. comparable: whether
    there is a gradient to compare with. differs_besides_norm: whether a gradient differs even where batch
    norm uses its running statistics. exact: whether they were computed in float64.
    """

    gradients: list[GradientCheck] = field(default_factory=list)
    skipped: list[SkippedWay] = field(default_factory=list)
    repeats: bool = True
    same_samples: bool = True
    comparable: bool = True
    differs_besides_norm: bool = False
    exact: bool = True

    @property
    def rounding(self) -> float:
        """Largest difference that is none."""
        return SAME if self.exact else NEARLY

    @property
    def differing(self) -> list[str]:
        """Strategies whose gradient is not that of one process."""
        return [each.strategy for each in self.gradients if each.difference > self.rounding]


@dataclass(frozen=True)
class Checked:
    """What the checks found, what that means in words, and `parallel` as this network needs it.

    skipped: strategies that cannot train this network.
    """

    gradients: tuple[GradientCheck, ...]
    skipped: tuple[SkippedWay, ...]
    warnings: tuple[str, ...]
    parallel: ParallelParams


def check_own(task: OwnTask, parallel: ParallelParams, ways: Sequence[Way]) -> Checked:
    """Check a training before it is timed. Raises `TaskError` where its first step is not finite."""
    placement, processes = for_ways(ways, resolve_placement(parallel))
    first = launch_apart(first_step, placement.on_all_cores(), 1, task, parallel)
    if first.unused:
        parallel = replace(parallel, ddp=replace(parallel.ddp, find_unused_parameters=True))
    compared = launch_apart(
        check_rank, placement, processes, task, parallel, tuple(ways), first.has_batch_norm
    )
    said = in_words(first, compared)
    return Checked(tuple(compared.gradients), tuple(compared.skipped), tuple(said), parallel)


# --- steps by one process -----------------------------------------------------------------------------


def first_step(context: Context, task: OwnTask, parallel: ParallelParams) -> FirstStep:
    """Train a few steps by one process, which has read no sample before it starts workers.

    Raises `TaskError` where the loss or the gradient of the first is not finite, or where a step fails.
    """
    marks: list[ReferenceType[Any]] = []
    same_in_workers = repeats_in_workers(task)
    with own_errors(task.file):
        strategy = build_strategy("serial", task, PLAIN_STEP, context, parallel)
        plan = strategy.plan(STEPS * task.batchsz, task.batchsz, context)
        batch, *later = task.ready_batches(plan, STEPS, context)
        strategy.network.train()
        hook = strategy.model.register_forward_hook(lambda module, data, losses: marks.extend(_marks(losses)))
        loss, _, nonfinite = strategy.step(batch).tolist()
        hook.remove()
        if nonfinite or not math.isfinite(loss):
            raise TaskError(
                f"{task.file}: NaN or infinity in the first step, loss {loss / task.batchsz:g}; "
                "look at the samples, the first weights and the loss"
            )
        named = strategy.network.named_parameters()
        unused = tuple(name for name, each in named if each.requires_grad and each.grad is None)
        for each in later:
            strategy.step(each)
    can_be_wrapped = _can_be_wrapped(task, strategy.network, batch.to(context.device))
    has_batch_norm = any(isinstance(each, _BatchNorm) for each in strategy.network.modules())
    strategy.close()
    gc.collect()
    keeps_graph = any(mark() is not None for mark in marks)
    return FirstStep(unused, has_batch_norm, keeps_graph, can_be_wrapped, same_in_workers)


class _Wrapped(nn.Module):
    """A network as DistributedDataParallel wraps it: it can be called, and its parts are hidden."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module, self.is_called = module, False

    def forward(self, *inputs: Any, **named: Any) -> Any:
        self.is_called = True
        return self.module(*inputs, **named)


def _can_be_wrapped(task: OwnTask, network: nn.Module, batch: Batch) -> bool:
    """Whether the loss of a network that is wrapped can be computed, and calls it."""
    wrapped = _Wrapped(network)
    try:
        with torch.no_grad():
            task.forward(wrapped, task.prepare(batch.data))
    except TaskError:
        return False
    return wrapped.is_called


def _marks(outputs: Tensor) -> list[ReferenceType[Any]]:
    """Mark every node of the graph of `outputs` but those of the parameters, which others may keep.

    A mark is there as long as its node.
    """
    waiting, seen, marks = [outputs.grad_fn], set(), []
    while waiting:
        node = waiting.pop()
        if node is None or node in seen or node.name().endswith("AccumulateGrad"):
            continue

        def mark(*gradients: object) -> None:
            """Let gradients pass."""

        seen.add(node)
        node.register_prehook(mark)
        marks.append(ref(mark))
        waiting += [each for each, _ in node.next_functions]
    return marks


# --- samples ------------------------------------------------------------------------------------------


@dataclass
class Readings(Dataset[list[bytes]]):
    """Each item is the same: digests of some readings of the first sample, with nothing seeded."""

    steps: StepsOfDataset

    def __getitem__(self, index: int) -> list[bytes]:
        with own_errors(self.steps.file):
            return [_digest(self.steps, 0) for _ in range(READINGS)]


def repeats_in_workers(task: OwnTask) -> bool:
    """Whether a sample that is random is random alike in two workers, started by the platform's default.

    PyTorch seeds itself, NumPy and Python in every worker. A generator of the data set's own, or of the
    file's, is copied into each as it is.
    """
    steps = task.steps(Plan(task.batchsz, task.batchsz))
    first, second = host_batches(Readings(steps), range(2), workers=2, prefetch=2, pin_memory=False)
    return len(set(first)) > 1 and first == second


def _digests(task: OwnTask) -> list[bytes]:
    """Of the first, the middle and the last sample, as this process reads them; none of one that is random.

    What PyTorch, NumPy and Python draw at random is seeded.
    """
    steps = replace(task, random=False).steps(Plan(task.batchsz, task.batchsz), read_here=True)
    count = len(steps.dataset)
    with own_errors(task.file):
        once, again = ([_digest(steps, index) for index in (0, count // 2, count - 1)] for _ in range(2))
    return once if once == again else []


def _digest(steps: StepsOfDataset, index: int) -> bytes:
    """Digest of one sample as it is read: a function that collates may need more than one."""
    found = hashlib.sha256()
    read = steps.samples([index])
    try:
        samples = take_apart(read)
    except Exception:  # of any kind: batches are sent, samples need not be
        samples = read
    for leaf in (*tree_leaves(samples), samples.rest if isinstance(samples, Apart) else None):
        if isinstance(leaf, Tensor):
            for each in _strided(leaf):
                found.update(each.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        elif isinstance(leaf, LEAF_CLASSES):
            found.update(pickle.dumps(leaf))
    return found.digest()


def _strided(tensor: Tensor) -> Iterator[Tensor]:
    """Tensors of one piece of memory each that hold what a nested or a sparse one does."""
    if tensor.is_nested:
        yield from tensor.unbind()
    elif tensor.layout != torch.strided:
        entries = tensor.to_sparse_coo().coalesce()
        yield from (entries.indices(), entries.values())
    else:
        yield tensor


# --- ranks --------------------------------------------------------------------------------------------


def check_rank(
    context: Context,
    task: OwnTask,
    parallel: ParallelParams,
    ways: Sequence[Way],
    has_batch_norm: bool = False,
) -> Compared:
    """Compare the gradient of each strategy with that of one process, in float64 and without dropout.

    A few samples do where nothing differs, or nothing besides batch norm. Otherwise a whole batch decides: a
    loss may need more than those. A strategy that raises an error, on all ranks alike, is skipped.
    """
    torch.set_num_threads(context.placement.threads_per_replica)
    exact = replace(task, random=False)

    def compare(task: OwnTask) -> Compared:
        found = _compared(context, task, parallel, ways)
        if not (has_batch_norm and from_all_ranks(bool(found.differing), context, patient=True)[0]):
            return found
        at_rest = _compared(context, replace(task, batch_statistics=False), parallel, ways)
        return replace(found, differs_besides_norm=bool(at_rest.differing))

    read = [each for each in from_all_ranks(_digests(task), context, patient=True) if each]
    same, few = all(each == read[0] for each in read), COMPARED * context.placement.replicas
    if few < task.batchsz:
        with suppress(TaskError):
            found = compare(replace(exact, batchsz=few))
            unexplained = found.differs_besides_norm if has_batch_norm else bool(found.differing)
            doubtful = unexplained or bool(found.skipped) or not found.comparable
            if not from_all_ranks(doubtful, context, patient=True)[0]:  # the main rank compares
                return replace(found, same_samples=same)
    return replace(compare(exact), same_samples=same)


def _compared(
    context: Context,
    task: OwnTask,
    parallel: ParallelParams,
    ways: Sequence[Way],
) -> Compared:
    """Compare gradients of the first batch. Raises `TaskError` on all ranks where one process has none."""
    shared = {each.strategy: each for each in ways if each.strategy != "serial"}
    if not shared:
        return Compared()
    base, reason, exact = dict[str, Tensor](), "", True
    # on GPUs in all ranks: one that fails where another goes on would end both
    if context.is_main or context.device.type == "cuda":
        base, reason, exact = _base(context, task, parallel)
    told = from_all_ranks((reason, exact), context, patient=True)
    reason, exact = told[0]
    if reason:
        raise TaskError(reason)
    unable = next((each for each, _ in told if each), "")
    largest = max((float(each.abs().max()) for each in base.values()), default=0.0)
    if not from_all_ranks(0 < largest < math.inf, context, patient=True)[0]:
        return Compared(comparable=False)
    found = Compared(exact=exact)
    for way in shared.values():
        context.wait_for_all()
        processes = STRATEGIES[way.strategy].processes(way.replicas)
        mine, reason = context.first_ranks(processes), unable if processes > 1 else ""
        if mine is not None and not reason:
            try:
                moved = gradient(way.strategy, task, mine, parallel, PLAIN_STEP, exact=exact)
            except Exception as error:
                if is_of_a_peer(error, context):
                    raise
                reason = one_line(error)
        context.end_unless_all_fail(reason)
        if reason := next(filter(None, from_all_ranks(reason, context, patient=True)), ""):
            short = shorten(reason, LONGEST_REASON, placeholder=" …")
            found.skipped.append(SkippedWay(way.strategy, short))
        elif context.is_main and not base.keys() & moved.keys():
            found = replace(found, comparable=False)
        elif context.is_main:
            found.gradients.append(GradientCheck(way.strategy, difference(moved, base)))
    if not found.differing:
        return found
    again = gradient("serial", task, context.alone(), parallel, PLAIN_STEP, exact=exact)
    return replace(found, repeats=difference(again, base) <= found.rounding)


def _base(context: Context, task: OwnTask, parallel: ParallelParams) -> tuple[dict[str, Tensor], str, bool]:
    """The gradient by one process, why there is none, and whether it is in float64.

    A network may mix in float32, which does not go with float64.
    """
    reason = ""
    for exact in (True, False):
        try:
            moved = gradient("serial", task, context.alone(), parallel, PLAIN_STEP, exact=exact)
            return of_parameters(task, moved), "", exact
        except Exception as error:
            reason = one_line(error)
    return {}, reason, False


def in_words(first: FirstStep, compared: Compared) -> list[str]:
    """What the user should know; nothing where all is well."""
    said = []
    if first.unused:
        unused = counted(len(first.unused), "parameter gets", "parameters get")
        said.append(
            f"{unused} no gradient, the first of them {first.unused[0]}: "
            "DistributedDataParallel needs find_unused_parameters=True, as it has here"
        )
    if not first.can_be_wrapped:
        said.append(
            "loss() uses parts of network besides calling it, or instead: DistributedDataParallel and "
            "DataParallel hide them, so put the loss into the forward of a module, as was timed here"
        )
    if first.keeps_graph:
        said.append(
            "the graph of a step is kept after it, so that memory grows in every step: "
            "use loss.item() or detach() for what is kept"
        )
    if first.same_in_workers:
        said.append(
            "samples are random in the same way in every worker, for a generator is copied into each; "
            "draw from torch, numpy.random or random, which PyTorch seeds, or seed it in worker_init_fn"
        )
    if not compared.same_samples:
        said.append(
            "dataset() returns other samples in another process, so that ranks read some twice and others "
            "never: sort them, or seed what shuffles them"
        )
    if not compared.exact:
        said.append(
            "the network does not run in float64: gradients were compared in float32, where differences of "
            f"up to {NEARLY:g} are rounding"
        )
    if not compared.comparable:
        said.append(
            "the gradient of the first step is 0 or not finite, or goes by other names: strategies were not "
            "compared"
        )
    if differing := ", ".join(compared.differing):
        said.append(f"the gradient by {differing} is not that of one process: {_cause(first, compared)}")
    return said


def _cause(first: FirstStep, compared: Compared) -> str:
    """Why gradients differ, as far as it is known."""
    if not compared.same_samples:
        return "their samples are not the same"
    if not compared.repeats:
        return "one process does not compute the same twice either, for it draws random numbers"
    norm = "batch norm takes each replica's share by itself (torch.nn.SyncBatchNorm, on GPUs, does not)"
    loss = "the loss is no mean over the samples of a batch, or it depends on more than its samples"
    if not first.has_batch_norm:
        return loss
    return f"{norm}, and {loss}" if compared.differs_besides_norm else norm
