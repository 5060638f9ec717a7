"""Records of the strategies question: results/strategies."""

from __future__ import annotations

from dataclasses import dataclass

from parashot.records import Status, record


@record
class StrategyBlock:
    """One timed block of training steps of one variant in one round; rounds count on over the launches."""

    launch: int
    round: int
    variant: str  # `StrategyVariant.variant`
    steps: int
    seconds: float


@record
class StrategyVariant:
    """What one row of the strategy comparison is: a strategy with its replicas and threads.

    The base case of every speedup is the variant `serial`: one replica with as many threads as any replica
    has. `serial-all-cores` is one replica with all cores (CPU only).
    """

    variant: str
    strategy: str
    status: Status
    reason: str
    replicas: int
    threads_per_replica: int
    batchsz: int  # episodes per step, over all replicas


@record
class StepTrace:
    """Processes, threads and messages of one training step of a variant."""

    variant: str
    processes: int  # processes that ran a forward pass
    threads: int  # threads, over all processes, that ran a forward pass
    all_reduces: int  # by one process in one step
    bytes_sent: int  # by one process in one step, the mean over processes (dp: between its replicas)
    gradient_bytes: int  # bytes of gradients one replica contributes


@record
class StepShares:
    """How one process spent one step of a variant, as the profiler saw it: shares of the step's time."""

    variant: str
    rank: int
    step: int
    seconds: float  # under the profiler, which slows a step: shares are what it is for
    exposed: float  # messages were under way and nothing was computed; waiting for a peer is within
    hidden: float  # messages were under way while this process computed
    idle: float  # neither


@record
class StepEquality:
    """The gradient of one training step of a variant, in float64, against that of one replica."""

    variant: str
    gradient_difference: float  # the largest of an entry, over the largest entry


@record
class CostStep:
    """One timed block of steps of one replica that exchanges nothing: what the model of cost is fitted to."""

    round: int
    busy: int  # replicas that computed meanwhile, this one among them
    episodes: int  # per step of this replica
    steps: int
    seconds: float  # of the slowest of those


@record
class CostMessage:
    """One timed block of all-reduces of one message: what a link is fitted to."""

    round: int
    ranks: int
    bytes: int  # of one message
    calls: int
    seconds: float


@dataclass(frozen=True)
class StrategyResults:
    """`results/strategies`."""

    variants: tuple[StrategyVariant, ...]
    blocks: tuple[StrategyBlock, ...] = ()
    anatomy: tuple[StepTrace, ...] = ()
    shares: tuple[StepShares, ...] = ()
    cost_steps: tuple[CostStep, ...] = ()
    cost_messages: tuple[CostMessage, ...] = ()
    equality: tuple[StepEquality, ...] = ()
