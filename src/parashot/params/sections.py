"""The sections of params.yaml: each key's type, and its bounds beside it.

A section that is a strategy's stands in `parallel.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from parashot.parsing import Distinct, Number, Switch, Text, Whole
from parashot.records import record

Positive = Annotated[Whole, Field(ge=1)]
Auto = Literal["auto"]
Pairing = Literal["concat", "split", "auto"]
Precision = Literal["fp32", "bf16", "auto"]
Compile = Literal["none", "default", "reduce-overhead", "auto"]


@record
class SyntheticParams:
    """Size of the procedurally drawn data set."""

    images_per_class: Annotated[Whole, Field(ge=2, le=10_000)]
    image_size: Annotated[Whole, Field(ge=16, le=512)]


@record
class DataParams:
    """Where the images come from, and what happens to one that cannot be read."""

    source: Literal["synthetic", "miniimagenet", "folder"]
    archive: Text | None
    on_bad_image: Literal["fail", "skip"]
    pack_size: Annotated[Whole, Field(ge=8, le=1024)]
    synthetic: SyntheticParams


@record
class EpisodeSpec:
    """Shape of one few-shot task; k_shot and k_query count images per class."""

    n_way: Annotated[Whole, Field(ge=2, le=1000)]
    k_shot: Positive
    k_query: Positive

    @property
    def per_class(self) -> int:
        """Images of each class."""
        return self.k_shot + self.k_query

    @property
    def images(self) -> int:
        """Images of all classes together."""
        return self.n_way * self.per_class


@record
class ModelParams:
    """The Relation Network."""

    embedding: Literal["conv4", "conv4_pooled", "bottleneck", "resnet12", "resnet12_wide"]
    image_size: Annotated[Whole, Field(ge=16, le=1024)]
    test_size: Annotated[Whole, Field(ge=16, le=1024)] | None
    pairing: Pairing
    shots: Literal["mean", "sum"]
    head: Literal["relation", "residual", "bdc"]
    test_grids: Distinct[Annotated[Whole, Field(ge=1, le=7)]]
    init: Literal["kaiming", "xavier"]
    norm_episodes: Annotated[Whole, Field(ge=0)]


@record
class PretrainParams:
    """The embedding's training as a classifier of all training classes, before any episode."""

    epochs: Annotated[Whole, Field(ge=0, le=10_000)]
    batchsz: Positive
    optimizer: Literal["sgd", "muon"]
    learning_rate: Annotated[Number, Field(ge=1e-9, le=10)]
    weight_decay: Annotated[Number, Field(ge=0, le=1)]
    label_smoothing: Annotated[Number, Field(ge=0, le=0.99)]
    small_size: Annotated[Whole, Field(ge=16, le=1024)]
    small_share: Annotated[Number, Field(ge=0, le=1)]
    rotated: Annotated[Number, Field(ge=0, le=1)]
    dropblock: Annotated[Number, Field(ge=0, le=0.9)]
    compile: Literal["none", "default", "reduce-overhead"]
    validate_every: Positive


@record
class TrainParams:
    """One training: its budget of episodes, and how they become steps."""

    episodes: Positive
    n_way: Annotated[Whole, Field(ge=2, le=1000)] | None
    k_shot: Positive | None
    pretrained_share: Annotated[Number, Field(ge=0, le=0.99)]
    batchsz: Positive
    batch_per: Literal["global", "rank"]
    loss: Literal["mse", "cross_entropy"]
    learning_rate: Annotated[Number, Field(ge=1e-9, le=10)]
    lr_scaling: Literal["none", "linear", "sqrt"]
    lr_batchsz: Positive
    lr_relation: Annotated[Number, Field(ge=0, le=1000)]
    schedule: Literal["constant", "cosine"]
    warmup_steps: Annotated[Whole, Field(ge=0)]
    precision: Precision
    compile: Compile
    accumulate: Positive
    recompute: Switch
    validate_every: Positive
    val_episodes: Annotated[Whole, Field(ge=2)]
    checkpoint_every: Positive
    on_nonfinite: Literal["stop", "skip"]

    def of_size(self, batchsz: int, episodes: int, **more: Any) -> TrainParams:
        """The same with another batch size and budget, in no more parts than a step has episodes."""
        parts = min(self.accumulate, batchsz)
        return replace(self, batchsz=batchsz, episodes=episodes, accumulate=parts, **more)


@record
class AugmentParams:
    """How training images are varied; every image differently, validation and test images never.

    crop: least share of the area that a random crop keeps, 1 for none; flip: mirror half the images;
    jitter: scale brightness, contrast and saturation within 1 ± jitter.
    """

    crop: Annotated[Number, Field(ge=0.05, le=1)]
    flip: Switch
    jitter: Annotated[Number, Field(ge=0, le=1)]

    @property
    def active(self) -> bool:
        """Tell whether anything can change."""
        return self.crop < 1 or self.flip or self.jitter > 0


@record
class LoaderBenchParams:
    """The grid of `loader-bench`."""

    workers: Distinct[Annotated[Whole, Field(ge=0, le=1024)]] | Auto
    backends: Distinct[Literal["jpeg", "packed", "resident"]]
    seconds: Annotated[Number, Field(ge=0, le=600)]
    batchsz: Positive
    blocks: Annotated[Whole, Field(ge=7)]


@record
class LoaderParams:
    """How a training reads its episodes."""

    backend: Literal["jpeg", "packed", "resident"]
    workers: Annotated[Whole, Field(ge=0, le=1024)]
    prefetch: Positive
    bench: LoaderBenchParams


@record
class BatchszStudyParams:
    """Batch sizes: the study's experiment under DDP, and what each size reaches in the same time."""

    sizes: Distinct[Positive]
    baseline: Positive
    seeds: Annotated[Whole, Field(ge=3, le=1000)]
    seconds: Annotated[Number, Field(ge=0.001)]
    target: Annotated[Number, Field(ge=0.01, le=1)] | None
    lr_scaling: Literal["none", "linear", "sqrt"]
    episodes: Positive


@record
class WarmupStudyParams:
    """Trainings of several batch sizes with and without a warm-up of the learning rate."""

    enabled: Switch
    sizes: Distinct[Positive]
    warmup_share: Annotated[Number, Field(ge=0.001, le=1)]
    episodes: Positive
    seeds: Annotated[Whole, Field(ge=3, le=1000)]


@record
class SeedsStudyParams:
    """Trainings of every strategy with several seeds, so that the luck of one is in the comparison."""

    enabled: Switch
    seeds: Annotated[Whole, Field(ge=3, le=1000)]


@record
class EvaluateParams:
    """Episodes behind every reported accuracy."""

    k_query: Positive
    k_shots: Distinct[Positive]
    val_episodes: Annotated[Whole, Field(ge=2)]
    test_episodes: Annotated[Whole, Field(ge=2)]
    transductive_episodes: Annotated[Whole, Field(ge=0)]


@record
class ClaimsParams:
    """What a verdict asks for."""

    accuracy_margin: Annotated[Number, Field(ge=0.0001, le=1)]
    time_margin: Annotated[Number, Field(ge=0.001, le=1)]
    confidence: Annotated[Number, Field(ge=0.5, le=0.9999)]


@record
class TrackingParams:
    """MLflow."""

    experiment: Text
    live_seconds: Annotated[Number, Field(ge=0)]
