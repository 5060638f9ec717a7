"""From the blocks of the finals to a recommendation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from parashot.allocator import as_environment
from parashot.questions.advice import Choice
from parashot.questions.own.records import PLAIN, PREFETCH, OwnResults, OwnWay
from parashot.questions.statistics import CONFIDENCE, Ranking
from parashot.questions.text import percent, times
from parashot.questions.ways.rows import WayRow, step_seconds_by_way, way_rows

STRATEGY_RANKS = {"serial": 1, "dp": 1}
"""Processes of strategies that have one whatever the number of replicas; others have one for each."""

DTYPES = {"bf16": "torch.bfloat16", "fp16": "torch.float16"}
"""What autocast is told."""

DATA_PARALLEL = """\
class WithLoss(torch.nn.Module):  # replicas return losses, as it was timed, not outputs
    def __init__(self, network):
        super().__init__()
        self.network = network
    def forward(self, batch):
        return loss(self.network, batch)
training = torch.nn.DataParallel(WithLoss(network))
training(batch).mean().backward()"""

WRAPS = {
    "ddp": "network = torch.nn.parallel.DistributedDataParallel(network)",
    "fsdp": "fully_shard(network)  # after fully_shard of each of its blocks, before the optimizer is made",
}
"""Line that makes a network train by a strategy."""

BY_HAND = """\
trained = [each for each in network.parameters() if each.requires_grad]
for each in trained:  # after backward, which may not have reached it in each process
    each.grad = torch.zeros_like(each) if each.grad is None else each.grad
gradients = [each.grad for each in trained]
flat = torch.cat([each.reshape(-1) for each in gradients]) / {ranks}
torch.distributed.all_reduce(flat)
parts = flat.split([each.numel() for each in gradients])
for gradient, part in zip(gradients, parts):
    gradient.copy_(part.view_as(gradient))"""

MARGIN = 0.05
"""A way that takes at most so much longer is as good."""

ELSEWHEN = 0.05
"""Part by which intervals are widened, since a speedup is another one in the next process or hour.

Two ways to train examples/text_transformer.py, in plain PyTorch, differed by factors of 1.16, 1.20, 1.23 and
1.28 in four sittings of 4 to 10 comparisons, a standard deviation of 4%: how many pages the C library takes
anew in each step is another number in the next process. Decisions between ways hold for their sitting.
"""


@dataclass(frozen=True)
class OwnAdvice:
    """The way that is recommended, how sure that is, and a row for each finalist."""

    choice: Choice[str]
    rows: tuple[WayRow[OwnWay], ...]

    @property
    def row(self) -> WayRow[OwnWay]:
        """Of the way that is recommended."""
        return next(each for each in self.rows if each.way.way == self.choice.choice)

    @property
    def speedup(self) -> float:
        """Over the default."""
        return self.row.speedup.value if self.row.speedup else 1.0

    @property
    def sentence(self) -> str:
        """The recommendation."""
        if self.choice.choice == PLAIN:
            return f"Keep {self.row.way}: {self.choice.gains_nothing}."
        assert self.row.speedup is not None
        gain = f"{times(self.row.speedup)} as fast as the default, {self.rows[0].way}"
        waits = f"a step waits {percent(self.row.waiting.value, 0)} of its time for data"
        return f"Use {self.row.way}: {gain}; {waits}."

    @property
    def as_good(self) -> list[str]:
        """What may be changed in that way without loss: it was not decided between them. Else empty."""
        if self.choice.decided:
            return []
        others = [each.way for each in self.rows if each.way.way in self.choice.others]
        return [each.unlike(self.row.way) for each in others]


def advise_own(results: OwnResults) -> OwnAdvice | None:
    """Recommend the simplest of the finalists that is as good as the fastest.

    Where that is undecided it is the simplest near the fastest that is shown to be faster than the default,
    or the default if there is none. None where it was stopped before the default had two blocks.
    """
    finalists = results.finalists
    if not finalists or finalists[0].way != PLAIN:
        return None
    every = step_seconds_by_way(results.finals)
    seconds = {each.way: every[each.way] for each in finalists}
    ranking = Ranking.by_time(seconds, CONFIDENCE, MARGIN)
    rows = way_rows(finalists, results.finals, PLAIN, CONFIDENCE, ELSEWHEN)
    faster = {each.way.way for each in rows if each.speedup is not None and each.speedup.low > 1}
    choice = Choice.of(ranking, PLAIN, [each.way for each in simplest_first(finalists)], faster)
    return OwnAdvice(choice, tuple(rows))


def to_copy(way: OwnWay, gpus: bool, unused: bool = False) -> list[str]:
    """Lines of PyTorch that train in this way, as a script has them; each rank reads its share of a batch.

    unused: whether some parameters get no gradient.
    """
    ranks, device = STRATEGY_RANKS.get(way.strategy, way.replicas), "cuda" if gpus else "cpu"
    dtype, by_hand = DTYPES.get(way.precision), way.strategy in ("allreduce", "fsdp")
    # threads of DataParallel do not inherit its precision
    where = "in WithLoss.forward" if way.strategy == "dp" else "around the loss"
    kept = " ".join(f"{name}={value}" for name, value in as_environment().items())
    lines = {
        f"export {kept}  # in the shell: the C library keeps freed memory": way.keep_memory,
        **dict.fromkeys(_begin(way, ranks, gpus), ranks > 1),
        f"torch.set_num_threads({way.threads_per_replica})": not gpus or ranks > 1,
        "torch.manual_seed(0)  # before the network is made, so that it is the same in all ranks": by_hand,
        "torch.manual_seed(torch.distributed.get_rank())  # after it is made": by_hand,
        "from torch.distributed.fsdp import fully_shard": way.strategy == "fsdp",
        _loader(way, ranks): True,
        "tensor.to(device, non_blocking=True)  # each tensor of a batch": way.pin_memory,
        "network = network.to(memory_format=torch.channels_last)": way.channels_last,
        f"network.compile(mode={way.compile!r})": way.compile != "none",
        _wrap(way.strategy, unused): way.strategy in WRAPS,
        **dict.fromkeys(DATA_PARALLEL.splitlines(), way.strategy == "dp"),
        "optimizer = YOUR_OPTIMIZER(..., fused=True)": way.fused,
        'torch.set_float32_matmul_precision("high")': way.precision == "tf32",
        f'scaler = torch.amp.GradScaler("{device}")  # for backward and step': way.precision == "fp16",
        f'with torch.autocast("{device}", {dtype}):  # {where}': dtype is not None,
        **dict.fromkeys(BY_HAND.format(ranks=ranks).splitlines(), way.strategy == "allreduce"),
        "torch.distributed.destroy_process_group()  # at the end": ranks > 1,
    }
    return [line for line, applies in lines.items() if applies]


def _begin(way: OwnWay, ranks: int, gpus: bool) -> list[str]:
    """Start a process for each rank, and share the samples out."""
    own_device = "torch.cuda.set_device(torch.distributed.get_node_local_rank())"
    return [
        f"torchrun --nproc-per-node {ranks} YOUR_SCRIPT.py",
        f'torch.distributed.init_process_group("{"nccl" if gpus else "gloo"}")',
        *([own_device] if gpus else []),
        "sampler = torch.utils.data.DistributedSampler(dataset)  # not shuffle; each epoch: set_epoch(epoch)",
    ]


def _wrap(strategy: str, unused: bool) -> str:
    """The line that makes a network train by a strategy; empty where there is none."""
    line = WRAPS.get(strategy, "")
    if unused and strategy == "ddp":
        line = line.replace("(network)", "(network, find_unused_parameters=True)")
    return line


def _loader(way: OwnWay, ranks: int) -> str:
    """The call of `DataLoader`, of one rank."""
    share = math.ceil(way.batchsz / ranks)
    arguments = [f"batch_size={share}", f"num_workers={math.ceil(way.workers / ranks)}"]
    if way.workers:
        arguments += [f"prefetch_factor={way.prefetch}", "persistent_workers=True"]
    if way.pin_memory:
        arguments.append("pin_memory=True")
    if ranks > 1:
        arguments.append("sampler=sampler")
    arguments.append("...")
    timed = "" if share * ranks == way.batchsz else f"  # {share * ranks} per step; {way.batchsz} were timed"
    return f"DataLoader(dataset, {', '.join(arguments)}){timed}"


def simplest_first(ways: Sequence[OwnWay]) -> list[OwnWay]:
    """The default, then fewer replicas, what PyTorch wraps, fewer changes, fewer workers, full precision."""

    def cost(way: OwnWay) -> tuple[bool, int, bool, int, int, bool]:
        changes = len(way.extras) + (way.prefetch != PREFETCH)
        by_hand, rounded = way.strategy == "allreduce", way.precision != "fp32"
        return way.way != PLAIN, way.replicas, by_hand, changes, way.workers, rounded

    return sorted(ways, key=cost)
