"""params.yaml as one frozen, checked tree: every knob, its type, and its bounds beside it.

A key that is unknown, missing, of the wrong type or out of range raises `ParamsError`, as values do that do
not fit together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from parashot.errors import ParamsError
from parashot.parsing import Distinct, Number, Switch, Text, Whole, keys, parse, read_yaml
from parashot.records import record

SPLIT_CLASSES = {"train": 64, "val": 16, "test": 20}
"""Classes per split of miniImageNet (Ravi and Larochelle, ICLR 2017) and of the synthetic set."""

IMAGES_PER_CLASS = 600
"""Images per class of miniImageNet."""

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
    """How training images are varied; every image differently, validation and test images never."""

    crop: Annotated[Number, Field(ge=0.05, le=1)]
    flip: Switch
    jitter: Annotated[Number, Field(ge=0, le=1)]

    @property
    def active(self) -> bool:
        """Tell whether anything can change."""
        return self.crop < 1 or self.flip or self.jitter > 0


@record
class StrategyParams:
    """Section of one strategy; options of its own stand in a subclass."""

    enabled: Switch


@record
class SerialParams(StrategyParams):
    """One replica."""

    twin: Switch


@record
class DpParams(StrategyParams):
    """DataParallel."""

    loss_in_replica: Switch


@record
class DdpParams(StrategyParams):
    """DistributedDataParallel."""

    bucket_mb: Annotated[Number, Field(ge=0.001, le=4096)]
    gradient_as_bucket_view: Switch
    find_unused_parameters: Switch
    compression: Literal["none", "bf16"]


@record
class AllreduceParams(StrategyParams):
    """Gradients averaged by hand."""

    flat: Switch


@record
class LayerSplitParams(StrategyParams):
    """The layers on two devices."""

    micro_batches: Positive


@record
class StrategyBenchParams:
    """Interleaved blocks of steps in `strategy-bench`."""

    blocks: Annotated[Whole, Field(ge=7)]
    launches: Annotated[Whole, Field(ge=1, le=12)]
    seconds: Annotated[Number, Field(ge=0, le=600)]


@record
class ParallelParams:
    """Devices, replicas, and a section for each strategy.

    Any further section is that of a strategy without options, so a new one of these needs no change here.
    """

    device: Literal["auto", "cpu", "cuda"]
    replicas: Positive | Auto
    backend: Literal["auto", "gloo", "nccl"]
    serial: SerialParams
    dp: DpParams
    ddp: DdpParams
    allreduce: AllreduceParams
    fsdp: StrategyParams
    layer_split: LayerSplitParams
    channel_split: StrategyParams
    bench: StrategyBenchParams
    further: dict[str, StrategyParams] = field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _gather_further(cls, tree: Any) -> Any:
        """Move the sections of YAML that are no fields into `further`."""
        if not isinstance(tree, dict):
            return tree
        known = keys(cls)
        further = {
            name: parse(StrategyParams, each, f"parallel.{name}")
            for name, each in tree.items()
            if isinstance(name, str) and name not in known and isinstance(each, dict)
        }
        return {**{name: each for name, each in tree.items() if name not in further}, "further": further}

    @property
    def strategies(self) -> tuple[str, ...]:
        """Names of all strategies, switched on or not."""
        names = (each.name for each in fields(self))
        return (*(each for each in names if isinstance(getattr(self, each), StrategyParams)), *self.further)

    def section(self, strategy: str) -> StrategyParams:
        """Return the section of a strategy; one that has none is switched off."""
        off = StrategyParams(False)
        section: StrategyParams = getattr(self, strategy, self.further.get(strategy, off))
        return section

    def switched_off(self, strategy: str) -> str:
        """Return why the user will not have the strategy run; an empty text where it is wanted."""
        return "" if self.section(strategy).enabled else f"parallel.{strategy}.enabled is false"


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


@record
class Params:
    """The whole of params.yaml."""

    seed: Annotated[Whole, Field(ge=0, le=2**31 - 1)]
    data: DataParams
    episode: EpisodeSpec
    model: ModelParams
    pretrain: PretrainParams
    train: TrainParams
    augment: AugmentParams
    parallel: ParallelParams
    loader: LoaderParams
    batchsz_study: BatchszStudyParams
    warmup_study: WarmupStudyParams
    seeds_study: SeedsStudyParams
    evaluate: EvaluateParams
    claims: ClaimsParams
    tracking: TrackingParams

    @property
    def training_episode(self) -> EpisodeSpec:
        """Shape of a training episode."""
        train, episode = self.train, self.episode
        return EpisodeSpec(train.n_way or episode.n_way, train.k_shot or episode.k_shot, episode.k_query)

    @property
    def tested_episode(self) -> EpisodeSpec:
        """Shape of an episode of validation and test."""
        return replace(self.episode, k_query=self.evaluate.k_query)

    def __post_init__(self) -> None:
        for line in _misfits(self):
            raise ParamsError(line)


def load_params(path: Path) -> Params:
    """Read and check `path`. Raises `ParamsError` in one line."""
    return parse(Params, read_yaml(path))


def _misfits(params: Params) -> Iterator[str]:
    """Yield a line for values, each allowed by itself, that do not fit together."""
    data, train, model = params.data, params.train, params.model
    if data.source == "folder" and data.archive is None:
        yield "data.archive: null, but data.source is folder; name the folder that holds the classes"
    if data.source == "synthetic" and data.archive is not None:
        yield (
            f"data.archive: {data.archive!r} is not used by data.source synthetic; "
            "set data.source to miniimagenet or folder, or data.archive to null"
        )
    if train.batchsz > train.episodes:
        yield f"train.batchsz: {train.batchsz}, but train.episodes is {train.episodes}; take at most that"
    if train.pretrained_share and not params.pretrain.epochs:
        yield f"train.pretrained_share: {train.pretrained_share}, but pretrain.epochs is 0; set it to 0"
    if model.head != "relation" and model.shots == "sum":
        yield f"model.shots: sum, but model.head {model.head} compares means; set it to mean"
    if params.evaluate.transductive_episodes == 1:
        yield "evaluate.transductive_episodes: 1, but an interval needs two; it must be 0 or at least 2"
    yield from _misfits_of_a_step(train, params.augment, params.loader)
    yield from _misfits_of_studies(params.batchsz_study, params.warmup_study)
    if data.source != "folder":
        yield from _misfits_of_the_images(params)


def _misfits_of_a_step(train: TrainParams, augment: AugmentParams, loader: LoaderParams) -> Iterator[str]:
    if train.accumulate > train.batchsz:
        yield f"train.accumulate: {train.accumulate}, but train.batchsz is {train.batchsz}; take at most that"
    if train.recompute and train.compile in {"default", "reduce-overhead"}:
        yield "train.recompute: true, but a compiled network decides that itself; set train.compile to none"
    if train.accumulate > 1 and train.compile == "reduce-overhead":  # it would overwrite their gradients
        yield f"train.accumulate: {train.accumulate}, but train.compile is reduce-overhead; set it to 1"
    if loader.backend == "jpeg" and augment.active:
        yield (
            "augment: varies pixels on the device, but loader.backend jpeg normalises them before; "
            "set loader.backend to packed or resident"
        )


def _misfits_of_studies(batchsz: BatchszStudyParams, warmup: WarmupStudyParams) -> Iterator[str]:
    if (largest := max(batchsz.sizes)) > (most := batchsz.episodes):
        yield f"batchsz_study.sizes: {largest}, but batchsz_study.episodes is {most}; take at most that"
    if batchsz.baseline not in batchsz.sizes:
        sizes = ", ".join(map(str, batchsz.sizes))
        yield f"batchsz_study.baseline: {batchsz.baseline} must be one of the sizes ({sizes})"
    if len(warmup.sizes) < 2:
        yield f"warmup_study.sizes: {list(warmup.sizes)}, but at least two sizes are compared"
    if 2 * (largest := max(warmup.sizes)) > (most := warmup.episodes):  # a step to warm up, and one after it
        yield f"warmup_study.sizes: {largest}, but warmup_study.episodes is {most}; take at most half of that"


def _misfits_of_the_images(params: Params) -> Iterator[str]:
    """Check classes and images per class of the sets whose size is known before they are there."""
    episode, source = params.episode, params.data.source
    for key, n_way, split in (("episode", episode.n_way, "val"), ("train", params.train.n_way or 0, "train")):
        if n_way > (most := SPLIT_CLASSES[split]):
            yield f"{key}.n_way: {n_way}, but split {split} has {most} classes; it must be at most {most}"
    images = params.data.synthetic.images_per_class if source == "synthetic" else IMAGES_PER_CLASS
    for key, k_query in (("episode", episode.k_query), ("evaluate", params.evaluate.k_query)):
        if (needed := episode.k_shot + k_query) > images:
            yield (
                f"{key}.k_query: {k_query} with episode.k_shot {episode.k_shot} needs {needed} "
                f"images per class, but {source} has {images}"
            )
