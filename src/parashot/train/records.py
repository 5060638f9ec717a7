"""Records of trainings: results/pretrain, results/train and results/choices.json."""

from __future__ import annotations

from collections.abc import Sequence

from parashot.records import Metric, Status, record


@record
class Choices:
    """How every strategy computes its steps: what params leave to `auto`, decided by measurement."""

    pairing: str  # concat | split
    precision: str  # fp32 | bf16
    compile: str  # none | default | reduce-overhead


@record
class PretrainRow:
    """One step of pretraining; `val_accuracy` is set where the embedding was tried on episodes."""

    step: int  # optimizer steps done
    images: int  # seen so far
    seconds: float  # so far; validations are not in it
    loss: float
    train_accuracy: float  # of classification
    val_accuracy: float | None  # of few-shot episodes, by the cosine of the embedding
    val_accuracy_ci95: float | None


@record
class PretrainResult:
    """The embedding's training as a classifier; where `status` is skipped, every number is 0 or None."""

    status: Status
    reason: str
    device: str = ""
    threads: int = 0
    classes: int = 0
    epochs: int = 0
    steps: int = 0
    images: int = 0  # seen, over all epochs
    seconds: float | None = 0.0  # without validations; None where it was taken up again
    images_per_second: float = 0.0  # over all steps, those at a smaller size too
    train_accuracy: float | None = None  # mean of the last epoch
    val_accuracy: float | None = None  # of few-shot episodes, by the cosine of the embedding
    val_accuracy_ci95: float | None = None
    val_episodes: int = 0
    resumed: int = 0


@record
class HistoryRow:
    """One step of a training, or one validation where `val_accuracy` is set."""

    step: int  # optimizer steps done
    episodes: int  # episodes seen, over all replicas
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
    episodes: int = 0
    seconds: float | None = (
        0.0  # steps with their loading, without validations; None where it was taken up again
    )
    seconds_per_step: float = 0.0  # median over steps
    data_share: float = 0.0  # share of `seconds` spent waiting for batches
    val_accuracy: float | None = None  # after the last step, on `val_episodes` packed episodes
    val_accuracy_ci95: float | None = None  # half width
    val_episodes: int = 0
    peak_memory_bytes: int | None = None  # CPU: summed PSS above idle; CUDA: the largest rank
    memory_by_device: tuple[int, ...] = ()  # CUDA only: max_memory_allocated of each device
    ranks_identical: bool | None = None  # after training, all replicas held the same parameters, bit for bit
    parameters: int = 0
    resumed: int = 0  # how often it was taken up again from a saved state
    nonfinite_steps: int = 0  # left out, since loss or gradient held NaN or infinity


@record
class EpisodeAccuracy:
    """Accuracy of one packed episode; paired over strategies by `episode`."""

    episode: int
    accuracy: float


@record
class SeedAccuracy:
    """Accuracy of one packed validation episode after a training with one seed."""

    seed: int
    episode: int
    accuracy: float


@record
class TaskAccuracy:
    """A network on episodes of one shape: a row of tasks.csv. `ci95` are half widths.

    All but the last are of the same episodes. Transductive: batch norm by an episode's own images, so that
    its queries help each other.
    """

    n_way: int
    k_shot: int
    k_query: int
    episodes: int
    accuracy: float
    accuracy_ci95: float
    cosine_accuracy: float  # of the mean maps, without the relation head
    cosine_accuracy_ci95: float
    relation_accuracy: float  # of the relation head alone
    relation_accuracy_ci95: float
    margin: float  # accuracy less cosine accuracy, episode by episode
    margin_ci95: float
    transductive_episodes: int  # 0: not measured
    transductive_accuracy: float
    transductive_accuracy_ci95: float


def followed(
    history: Sequence[HistoryRow] | Sequence[PretrainRow], columns: Sequence[str], start_ms: int
) -> list[Metric]:
    """Those columns of a history as metrics over its steps, each at the time when its step was done."""
    return [
        Metric(name, value, row.step, start_ms + round(1000 * row.seconds))
        for row in history
        for name in columns
        if (value := getattr(row, name)) is not None
    ]
