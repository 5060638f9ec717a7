"""Checks of the user's training before it is timed.

Do all strategies compute the gradient of one process, of all parameters? Is the graph of a step kept after
it, so that memory grows in every step? Are samples random anew in each worker, and does every rank have the
same ones?
"""

from __future__ import annotations

import gc
import hashlib
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from io import BytesIO
from textwrap import shorten
from typing import Any
from weakref import ReferenceType, ref

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import Dataset

from parashot.data.loaders import host_batches
from parashot.errors import TaskError, one_line
from parashot.parallel.context import Context, resolve_placement
from parashot.parallel.exchange import from_all_ranks
from parashot.parallel.launch import is_of_a_peer, launch_apart
from parashot.parallel.registry import STRATEGIES, build_strategy
from parashot.parallel.strategy import StepOptions
from parashot.params import ParallelParams
from parashot.questions.strategies.equality import difference, gradient, of_parameters
from parashot.questions.text import counted
from parashot.questions.ways.measure import for_ways
from parashot.questions.ways.records import SkippedWay, Way
from parashot.task import Batch, Plan
from parashot.tasks.apart import without_tensors
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
class Checked:
    """What the checks found, as warnings too, and `parallel` as this network needs it.

    gradients: of `OwnResults`. skipped: strategies that cannot train this network.
    """

    gradients: Mapping[str, float]
    skipped: Sequence[SkippedWay]
    warnings: Sequence[str]
    parallel: ParallelParams


@dataclass(frozen=True)
class FirstStep:
    """What the first steps by one process show; unused: names of parameters that get no gradient."""

    unused: tuple[str, ...]
    warnings: Sequence[str]


@dataclass
class Compared:
    """Gradients of strategies against that of one process, and what may explain differences."""

    exact: bool = True  # computed in float64
    comparable: bool = True  # there is a gradient to compare with
    repeats: bool = True  # one process computes the same gradient twice
    has_batch_norm: bool = False  # looked up where gradients differ
    same_samples: bool = True  # ranks read the same ones at the same places
    differs_besides_norm: bool = False  # also where batch norm uses its running statistics
    gradients: dict[str, float] = field(default_factory=dict)  # of each strategy the largest difference
    skipped: list[SkippedWay] = field(default_factory=list)

    @property
    def rounding(self) -> float:
        """Largest difference that is none."""
        return SAME if self.exact else NEARLY

    @property
    def differing(self) -> list[str]:
        """Strategies whose gradient is not that of one process."""
        return [name for name, largest in self.gradients.items() if largest > self.rounding]


def check_own(task: OwnTask, parallel: ParallelParams, ways: Sequence[Way]) -> Checked:
    """Check a training before it is timed. Raises `TaskError` where its first step is not finite."""
    placement, processes = for_ways(ways, resolve_placement(parallel))
    first = launch_apart(first_step, placement.on_all_cores(), 1, task, parallel)
    if first.unused:
        parallel = replace(parallel, ddp=replace(parallel.ddp, find_unused_parameters=True))
    found = launch_apart(check_rank, placement, processes, task, parallel, tuple(ways))
    return replace(found, warnings=[*first.warnings, *found.warnings])


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
    strategy.close()
    gc.collect()
    keeps_graph = any(mark() is not None for mark in marks)
    warnings = _warnings(unused, can_be_wrapped, keeps_graph, same_in_workers)
    return FirstStep(unused, warnings)


def _warnings(
    unused: Sequence[str], can_be_wrapped: bool, keeps_graph: bool, same_in_workers: bool
) -> list[str]:
    """What the first steps show, in words."""
    warnings = []
    if unused:
        warnings.append(
            f"{counted(len(unused), 'parameter gets', 'parameters get')} no gradient, the first of them "
            f"{unused[0]}: DistributedDataParallel needs find_unused_parameters=True, as it has here"
        )
    if not can_be_wrapped:
        warnings.append(
            "loss() uses parts of network besides calling it, or instead: DistributedDataParallel and "
            "DataParallel hide them, so put the loss into the forward of a module, as was timed here"
        )
    if keeps_graph:
        warnings.append(
            "the graph of a step is kept after it, so that memory grows in every step: "
            "use loss.item() or detach() for what is kept"
        )
    if same_in_workers:
        warnings.append(
            "samples are random in the same way in every worker, for a generator is copied into each; "
            "draw from torch, numpy.random or random, which PyTorch seeds, or seed it in worker_init_fn"
        )
    return warnings


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
    """Digest of one sample before it is collated; the same of all that cannot be pickled."""
    sample, content = steps.samples([index]), BytesIO()
    with suppress(Exception):  # of any kind: classes pickle themselves
        apart = without_tensors(sample)
        # copies, since a view would be saved with the whole tensor that it is a part of
        torch.save((apart.rest, [each.detach().clone() for each in apart.tensors]), content)
    return hashlib.sha256(content.getvalue()).digest()


# --- ranks --------------------------------------------------------------------------------------------


def check_rank(context: Context, task: OwnTask, parallel: ParallelParams, ways: Sequence[Way]) -> Checked:
    """Compare the gradient of each strategy with that of one process, in float64 and without dropout.

    A few samples do, or a whole batch where a loss needs more than those. A strategy that raises an error, on
    all ranks alike, is skipped.
    """
    torch.set_num_threads(context.placement.threads_per_replica)
    task = replace(task, random=False)
    read = [each for each in from_all_ranks(_digests(task), context, patient=True) if each]
    fewer = replace(task, batchsz=min(task.batchsz, COMPARED * context.placement.replicas))
    found = Compared(comparable=False)
    with suppress(TaskError):
        found = _compared(context, fewer, parallel, ways)
    # the main rank compares
    if from_all_ranks(found.comparable and not found.skipped, context, patient=True)[0]:
        task = fewer
    else:
        found = _compared(context, task, parallel, ways)
    if from_all_ranks(bool(found.differing), context, patient=True)[0]:
        found.has_batch_norm = any(isinstance(each, _BatchNorm) for each in task.network().modules())
    if found.has_batch_norm:
        at_rest = _compared(context, replace(task, batch_statistics=False), parallel, ways)
        found.differs_besides_norm = bool(at_rest.differing)
    found.same_samples = all(each == read[0] for each in read)
    return Checked(found.gradients, found.skipped, _in_words(found), parallel)


def _compared(context: Context, task: OwnTask, parallel: ParallelParams, ways: Sequence[Way]) -> Compared:
    """Compare gradients of the first batch. Raises `TaskError` on all ranks where one process has none."""
    shared = {each.strategy: each for each in ways if each.strategy != "serial"}
    if not shared:
        return Compared()
    base, exact, reason = dict[str, Tensor](), True, ""
    # on GPUs in all ranks: one that fails where another goes on would end both
    if context.is_main or context.device.type == "cuda":
        base, exact, reason = _base(context, task, parallel)
    largest = max((float(each.abs().max()) for each in base.values()), default=0.0)
    told = from_all_ranks((reason, exact, 0 < largest < math.inf), context, patient=True)
    unable = next((each for each, *_ in told if each), "")
    reason, exact, comparable = told[0]
    if reason:
        raise TaskError(reason)
    found = Compared(exact, comparable)
    if not comparable:
        return found
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
            found.comparable = False
        elif context.is_main:
            found.gradients[way.strategy] = difference(moved, base)
    if found.differing:
        again = gradient("serial", task, context.alone(), parallel, PLAIN_STEP, exact=exact)
        found.repeats = difference(again, base) <= found.rounding
    return found


def _base(context: Context, task: OwnTask, parallel: ParallelParams) -> tuple[dict[str, Tensor], bool, str]:
    """The gradient by one process, whether it is in float64, and why there is none.

    A network may mix in float32, which does not go with float64.
    """
    reason = ""
    for exact in (True, False):
        try:
            moved = gradient("serial", task, context.alone(), parallel, PLAIN_STEP, exact=exact)
            return of_parameters(task, moved), exact, ""
        except Exception as error:
            reason = one_line(error)
    return {}, False, reason


def _in_words(found: Compared) -> list[str]:
    """What the user should know; nothing where all is well."""
    said = []
    if not found.same_samples:
        said.append(
            "dataset() returns other samples in another process, so that ranks read some twice and others "
            "never: sort them, or seed what shuffles them"
        )
    if not found.exact:
        said.append(
            "the network does not run in float64: gradients were compared in float32, where differences of "
            f"up to {NEARLY:g} are rounding"
        )
    if not found.comparable:
        said.append(
            "the gradient of the first step is 0 or not finite, or goes by other names: strategies were not "
            "compared"
        )
    if differing := ", ".join(found.differing):
        said.append(f"the gradient by {differing} is not that of one process: {_cause(found)}")
    return said


def _cause(found: Compared) -> str:
    """Why gradients differ, as far as it is known."""
    if not found.same_samples:
        return "their samples are not the same"
    if not found.repeats:
        return "one process does not compute the same twice either, for it draws random numbers"
    norm = "batch norm takes each replica's share by itself (torch.nn.SyncBatchNorm, on GPUs, does not)"
    loss = "the loss is no mean over the samples of a batch, or it depends on more than its samples"
    if not found.has_batch_norm:
        return loss
    return f"{norm}, and {loss}" if found.differs_besides_norm else norm
