"""Records of the batch-size question: results/batchsz."""

from __future__ import annotations

from dataclasses import dataclass

from parashot.records import Status, record


@record
class BatchszRun:
    """One training of the batch-size study under DDP, with the study's limit: the baseline's time."""

    batchsz: int
    status: Status
    reason: str
    replicas: int
    seconds: float | None  # None where it was skipped
    limit_seconds: float | None  # None for the baseline
    episodes: int  # done
    episodes_budget: int
    projected_seconds: float | None  # of the whole budget at the rate seen
    val_accuracy: float | None
    val_accuracy_ci95: float | None


@record
class BatchszBlock:
    """One timed block of steps of one size; `synchronised` False leaves the gradient exchange out."""

    round: int
    batchsz: int
    synchronised: bool
    episodes: int
    steps: int
    seconds: float


@record
class BatchszTraining:
    """One training of one size with one seed, in the time that all sizes have, or a multiple of it."""

    batchsz: int
    seed: int
    seconds: float  # that it had, at the size's speed under DDP
    steps: int
    episodes: int
    learning_rate: float  # the full one, scaled with the size
    val_accuracy: float


@record
class GradientSample:
    """The gradient of one episode at the start of training, and the mean of all samples."""

    episode: int
    squared_norm: float
    dot_with_mean: float


@dataclass(frozen=True)
class BatchszResults:
    """`results/batchsz`."""

    runs: tuple[BatchszRun, ...]
    blocks: tuple[BatchszBlock, ...]
    trainings: tuple[BatchszTraining, ...] = ()
    in_fp32: tuple[BatchszTraining, ...] = ()  # the baseline's again, where steps are computed in bf16
    gradients: tuple[GradientSample, ...] = ()
