"""Records of trainings: results/pretrain, results/train and results/choices.json."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from parashot.params import Compile, Pairing, Params, Precision
from parashot.records import Status, record


@record
class Choices:
    """How every strategy computes its steps: what params leave to `auto`, decided by measurement."""

    pairing: str  # concat | split
    precision: str  # fp32 | bf16
    compile: str  # none | default | reduce-overhead

    def __str__(self) -> str:
        compiled = "" if self.compile == "none" else f", compiled ({self.compile})"
        return f"{self.precision} with pairing {self.pairing}{compiled}"


def resolve_auto(params: Params, choices: Choices) -> Params:
    """Replace every `auto` of the step by `choices`."""
    asked = (params.model.pairing, params.train.precision, params.train.compile)
    measured = (choices.pairing, choices.precision, choices.compile)
    pairs = zip(asked, measured, strict=True)
    return computed_as(params, Choices(*(ours if theirs == "auto" else theirs for theirs, ours in pairs)))


def computed_as(params: Params, choices: Choices) -> Params:
    """Let steps be computed in the way of `choices`, whatever params ask for."""
    precision, mode = cast("Precision", choices.precision), cast("Compile", choices.compile)
    return replace(
        params,
        model=replace(params.model, pairing=cast("Pairing", choices.pairing)),
        train=replace(params.train, precision=precision, compile=mode),
    )


@record
class HistoryRow:
    """One step of a training; where a validation followed it, with `val_accuracy`."""

    step: int  # optimizer steps done
    items: int  # seen, over all replicas: episodes, or images in pretraining
    seconds: float  # of training so far; validations are not in it
    step_seconds: float
    data_seconds: float  # of step_seconds, spent waiting for the batch
    loss: float
    train_accuracy: float
    val_accuracy: float | None
    val_accuracy_ci95: float | None


@record
class TrainResult:
    """One whole training; where `status` is skipped, every number is 0 or None."""

    strategy: str
    status: Status
    reason: str
    device: str = ""
    how: str = ""  # in words: what the strategy really ran, e.g. "1 process, 2 replica threads (CPU)"
    replicas: int = 0
    threads_per_replica: int = 0
    batchsz: int = 0  # episodes per step, over all replicas
    batch_per: str = ""
    steps: int = 0
    items: int = 0  # episodes, or images in pretraining
    seconds: float | None = 0.0  # steps with loading, without validations; None where it was taken up again
    seconds_per_step: float = 0.0  # median over steps
    data_share: float = 0.0  # share of `seconds` spent waiting for batches
    val_accuracy: float | None = None  # after the last step, on `val_episodes` episodes
    val_accuracy_ci95: float | None = None  # half width
    val_episodes: int = 0
    peak_memory_bytes: int | None = None  # CPU: summed PSS above idle; CUDA: the largest rank
    memory_by_device: tuple[int, ...] = ()  # CUDA only: max_memory_allocated of each device
    ranks_identical: bool | None = None  # after training, all replicas held the same parameters, bit for bit
    parameters: int = 0
    resumed: int = 0  # how often it was taken up again from a saved state
    nonfinite_steps: int = 0  # skipped, since loss or gradient held NaN or infinity
    train_accuracy: float | None = None
    """Mean of the last steps, as many as lie between validations; in pretraining, of classification."""


@record
class EpisodeAccuracy:
    """Accuracy of one episode of validation or test; paired over strategies by `episode`."""

    episode: int
    accuracy: float


@record
class SeedAccuracy:
    """Accuracy of one validation episode after a training with one seed."""

    seed: int
    episode: int
    accuracy: float


@record
class TaskAccuracy:
    """A network on episodes of one shape: a row of tasks.csv. `ci95` are half widths.

    Transductive, of the first of these episodes: batch norm by an episode's own images, so that its queries
    help each other.
    """

    n_way: int
    k_shot: int
    k_query: int
    episodes: int
    accuracy: float
    accuracy_ci95: float
    cosine_accuracy: float  # of averaged maps, without the relation head
    cosine_accuracy_ci95: float
    relation_accuracy: float  # of the relation head without a cosine, where it adds one
    relation_accuracy_ci95: float
    margin: float  # accuracy less cosine accuracy, episode by episode
    margin_ci95: float
    transductive_episodes: int  # 0: not measured
    transductive_accuracy: float
    transductive_accuracy_ci95: float

    @property
    def adds_cosine(self) -> bool:
        """Whether the head is a residual one: the scores of others are those of the head itself."""
        return self.relation_accuracy != self.accuracy
