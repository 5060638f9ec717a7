"""The whole of params.yaml, and what does not fit together in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import Field

from parashot.errors import ParamsError
from parashot.params.parallel import ParallelParams
from parashot.params.sections import (
    AugmentParams,
    BatchszStudyParams,
    ClaimsParams,
    DataParams,
    EpisodeSpec,
    EvaluateParams,
    LoaderParams,
    ModelParams,
    PretrainParams,
    SeedsStudyParams,
    TrackingParams,
    TrainParams,
    WarmupStudyParams,
)
from parashot.parsing import Whole, parse, read_yaml
from parashot.records import record

SPLIT_CLASSES = {"train": 64, "val": 16, "test": 20}
"""Classes per split of miniImageNet (Ravi and Larochelle, ICLR 2017) and of the synthetic set."""

IMAGES_PER_CLASS = 600
"""Images per class of miniImageNet."""


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
        yield (
            f"train.pretrained_share: {train.pretrained_share}, but pretrain.epochs is 0, so nothing is "
            "pretrained; set it to 0"
        )
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
        yield (
            f"train.accumulate: {train.accumulate} parts, but a step has train.batchsz {train.batchsz} "
            "episodes; it must be at most that"
        )
    if train.recompute and train.compile in {"default", "reduce-overhead"}:
        yield (
            f"train.recompute: true, but a network compiled with {train.compile} decides itself what it "
            "recomputes; set train.compile to none"
        )
    if train.accumulate > 1 and train.compile == "reduce-overhead":
        yield (
            f"train.accumulate: {train.accumulate} parts, whose gradients a network compiled with "
            "reduce-overhead would overwrite; set train.compile to default or none"
        )
    if loader.backend == "jpeg" and augment.active:
        yield (
            "augment: varies pixels on the device, but loader.backend jpeg normalises them before; "
            "set loader.backend to packed or resident"
        )


def _misfits_of_studies(batchsz: BatchszStudyParams, warmup: WarmupStudyParams) -> Iterator[str]:
    for size in batchsz.sizes:
        if size > (most := batchsz.episodes):
            yield f"batchsz_study.sizes: {size}, but batchsz_study.episodes is {most}; take at most that"
    if batchsz.baseline not in batchsz.sizes:
        sizes = ", ".join(map(str, batchsz.sizes))
        yield f"batchsz_study.baseline: {batchsz.baseline} must be one of the sizes ({sizes})"
    if len(warmup.sizes) < 2:
        yield f"warmup_study.sizes: {list(warmup.sizes)}, but at least two sizes are compared"
    if 2 * (largest := max(warmup.sizes)) > warmup.episodes:  # a step to warm up, and one after it
        episodes = f"warmup_study.episodes is {warmup.episodes}"
        yield f"warmup_study.sizes: {largest}, but {episodes}; each must be at most half of that"


def _misfits_of_the_images(params: Params) -> Iterator[str]:
    """Check classes and images per class of the sets whose size is known before they are there."""
    episode, source = params.episode, params.data.source
    smallest = min(SPLIT_CLASSES, key=lambda split: SPLIT_CLASSES[split])
    ways = {"episode.n_way": (episode.n_way, smallest), "train.n_way": (params.train.n_way or 0, "train")}
    for key, (n_way, split) in ways.items():
        if n_way > (most := SPLIT_CLASSES[split]):
            yield f"{key}: {n_way}, but split {split} has {most} classes; it must be at most {most}"
    images = params.data.synthetic.images_per_class if source == "synthetic" else IMAGES_PER_CLASS
    queries = {"episode.k_query": episode.k_query, "evaluate.k_query": params.evaluate.k_query}
    for key, k_query in queries.items():
        if episode.k_shot + k_query > images:
            yield (
                f"{key}: {k_query} with episode.k_shot {episode.k_shot} needs {episode.k_shot + k_query} "
                f"images per class, but {source} has {images}; it must be at most {images - episode.k_shot}"
            )
