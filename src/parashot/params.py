"""params.yaml -> one frozen, checked tree of dataclasses: every knob there is. The only reader of YAML.

Bounds stand beside the type they bound; what must fit together is checked in `Params.__post_init__`. A key
that is unknown, missing, of the wrong type or out of range raises `ParamsError`: one line with the key, the
value found and what is allowed.
"""

from __future__ import annotations

import itertools
import math
import re
import types
import typing
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import yaml

from parashot.errors import ParamsError, one_line

T = TypeVar("T")

SPLIT_CLASSES = {"train": 64, "val": 16, "test": 20}
"""Classes per split of miniImageNet (Ravi and Larochelle, ICLR 2017) and of the synthetic set."""

IMAGES_PER_CLASS = 600
"""Images per class of miniImageNet."""

_SHOWN_LENGTH = 100
_MAX_TEXT = 2**18
_MAX_DEPTH = 50
_MAX_NODES = 10_000
"""Bounds of a file of params, far beyond what any needs."""


@dataclass(frozen=True)
class Bounds:
    """Allowed numbers, both ends included; on a tuple, it bounds each item."""

    low: float
    high: float | None = None

    def holds(self, value: float) -> bool:
        """Whether `value` lies within."""
        return value >= self.low and (self.high is None or value <= self.high)

    def __str__(self) -> str:
        return f"at least {self.low:g}" if self.high is None else f"from {self.low:g} to {self.high:g}"


Positive = Annotated[int, Bounds(1)]
Auto = Literal["auto"]
Pairing = Literal["concat", "split", "auto"]
Head = Literal["relation", "residual"]
Precision = Literal["fp32", "bf16", "auto"]
Compile = Literal["none", "default", "reduce-overhead", "auto"]


@dataclass(frozen=True)
class SyntheticParams:
    """Size of the procedurally drawn data set."""

    images_per_class: Annotated[int, Bounds(2, 10_000)]
    image_size: Annotated[int, Bounds(16, 512)]


@dataclass(frozen=True)
class DataParams:
    """Where the images come from, and what happens to one that cannot be read."""

    source: Literal["synthetic", "miniimagenet", "folder"]
    archive: str | None
    on_bad_image: Literal["fail", "skip"]
    pack_size: Annotated[int, Bounds(8, 1024)]
    synthetic: SyntheticParams


@dataclass(frozen=True)
class EpisodeParams:
    """Shape of one few-shot task; k_shot and k_query count images per class."""

    n_way: Annotated[int, Bounds(2, 1000)]
    k_shot: Positive
    k_query: Positive


@dataclass(frozen=True)
class ModelParams:
    """The Relation Network."""

    embedding: Literal["conv4", "conv4_pooled", "bottleneck", "resnet12"]
    image_size: Annotated[int, Bounds(16, 1024)]
    pairing: Pairing
    shots: Literal["mean", "sum"]
    head: Head
    init: Literal["kaiming", "xavier", "normal", "orthogonal"]


@dataclass(frozen=True)
class PretrainParams:
    """The embedding's training as a classifier of all training classes, before any episode."""

    epochs: Annotated[int, Bounds(0, 10_000)]
    classifier: Literal["linear", "cosine"]
    batchsz: Positive
    learning_rate: Annotated[float, Bounds(1e-9, 10)]
    weight_decay: Annotated[float, Bounds(0, 1)]
    label_smoothing: Annotated[float, Bounds(0, 0.99)]
    small_size: Annotated[int, Bounds(16, 1024)]
    small_share: Annotated[float, Bounds(0, 1)]
    validate_every: Positive


@dataclass(frozen=True)
class TrainParams:
    """One training: its budget of episodes, and how they become steps."""

    episodes: Positive
    batchsz: Positive
    batch_per: Literal["global", "rank"]
    loss: Literal["mse", "cross_entropy"]
    learning_rate: Annotated[float, Bounds(1e-9, 10)]
    lr_scaling: Literal["none", "linear", "sqrt"]
    lr_batchsz: Positive
    lr_relation: Annotated[float, Bounds(0, 1000)]
    schedule: Literal["constant", "cosine"]
    warmup_steps: Annotated[int, Bounds(0)]
    precision: Precision
    compile: Compile
    accumulate: Positive
    recompute: bool
    validate_every: Positive
    val_episodes: Annotated[int, Bounds(2)]
    checkpoint_every: Positive
    on_nonfinite: Literal["stop", "skip"]


@dataclass(frozen=True)
class AugmentParams:
    """How training images are varied; every image differently, validation and test images never."""

    crop: Annotated[float, Bounds(0.05, 1)]
    flip: bool
    jitter: Annotated[float, Bounds(0, 1)]


@dataclass(frozen=True)
class SerialParams:
    """One replica."""

    enabled: bool


@dataclass(frozen=True)
class DpParams:
    """DataParallel."""

    enabled: bool
    loss_in_replica: bool


@dataclass(frozen=True)
class DdpParams:
    """DistributedDataParallel."""

    enabled: bool
    bucket_mb: Annotated[float, Bounds(0.001, 4096)]
    gradient_as_bucket_view: bool
    static_graph: bool
    find_unused_parameters: bool
    compression: Literal["none", "bf16"]
    sync_batch_norm: bool


@dataclass(frozen=True)
class AllreduceParams:
    """Gradients averaged by hand."""

    enabled: bool
    flat: bool


@dataclass(frozen=True)
class FsdpParams:
    """Fully sharded data parallelism."""

    enabled: bool


@dataclass(frozen=True)
class LayerSplitParams:
    """The layers on two devices."""

    enabled: bool
    micro_batches: Positive


@dataclass(frozen=True)
class ChannelSplitParams:
    """Each layer's channels over the devices."""

    enabled: bool


@dataclass(frozen=True)
class StrategyBenchParams:
    """Interleaved blocks of steps in `strategy-bench`."""

    blocks: Annotated[int, Bounds(7)]
    steps: Positive
    warmup_steps: Positive


@dataclass(frozen=True)
class ParallelParams:
    """Devices, replicas and the strategies that are compared."""

    device: Literal["auto", "cpu", "cuda"]
    replicas: Positive | Auto
    backend: Literal["auto", "gloo", "nccl", "mpi"]
    init_method: str
    timeout_seconds: Annotated[float, Bounds(1, 86_400)]
    interface: str | None
    max_restarts: Annotated[int, Bounds(0, 1000)]
    serial: SerialParams
    dp: DpParams
    ddp: DdpParams
    allreduce: AllreduceParams
    fsdp: FsdpParams
    layer_split: LayerSplitParams
    channel_split: ChannelSplitParams
    bench: StrategyBenchParams

    @property
    def strategies(self) -> tuple[str, ...]:
        """Names of all strategies, switched on or not: the sections that have an `enabled`."""
        return tuple(each.name for each in fields(self) if hasattr(getattr(self, each.name), "enabled"))

    def switched_off(self, strategy: str) -> str:
        """Why the user will not have the strategy run; nothing where it is wanted."""
        return "" if getattr(self, strategy).enabled else f"parallel.{strategy}.enabled is false"


@dataclass(frozen=True)
class LoaderBenchParams:
    """The grid of `loader-bench`."""

    workers: tuple[Annotated[int, Bounds(0, 1024)], ...] | Auto
    backends: tuple[Literal["jpeg", "packed", "resident"], ...]
    batchsz: Positive
    blocks: Annotated[int, Bounds(7)]
    batches: Positive


@dataclass(frozen=True)
class LoaderParams:
    """How a training reads its episodes."""

    backend: Literal["jpeg", "packed", "resident"]
    workers: Annotated[int, Bounds(0, 1024)]
    prefetch: Positive
    bench: LoaderBenchParams


@dataclass(frozen=True)
class BatchszStudyParams:
    """Trainings of the same episodes with several batch sizes under DDP."""

    sizes: tuple[Positive, ...]
    baseline: Positive
    episodes: Positive
    blocks: Annotated[int, Bounds(7)]
    block_episodes: Positive


@dataclass(frozen=True)
class WarmupStudyParams:
    """Trainings of several batch sizes with and without a warm-up of the learning rate."""

    enabled: bool
    sizes: tuple[Positive, ...]
    warmup_share: Annotated[float, Bounds(0.001, 1)]
    episodes: Positive
    seeds: Annotated[int, Bounds(3, 1000)]


@dataclass(frozen=True)
class SeedsStudyParams:
    """Trainings of every strategy with several seeds, so that the luck of one is in the comparison."""

    enabled: bool
    seeds: Annotated[int, Bounds(3, 1000)]


@dataclass(frozen=True)
class EvaluateParams:
    """Episodes behind every reported accuracy."""

    k_query: Positive
    k_shots: tuple[Positive, ...]
    val_episodes: Annotated[int, Bounds(2)]
    test_episodes: Annotated[int, Bounds(2)]
    transductive_episodes: Annotated[int, Bounds(0)]


@dataclass(frozen=True)
class ClaimsParams:
    """What a verdict asks for."""

    accuracy_margin: Annotated[float, Bounds(0.0001, 1)]
    confidence: Annotated[float, Bounds(0.5, 0.9999)]
    resamples: Annotated[int, Bounds(100)]


@dataclass(frozen=True)
class TrackingParams:
    """MLflow."""

    experiment: str
    live_seconds: Annotated[float, Bounds(0)]


@dataclass(frozen=True)
class Params:
    """The whole of params.yaml."""

    seed: Annotated[int, Bounds(0, 2**31 - 1)]
    data: DataParams
    episode: EpisodeParams
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

    def __post_init__(self) -> None:
        _check_fit(self)


def load_params(path: Path) -> Params:
    """Read and check `path`. Raises `ParamsError` in one line."""
    return parse(Params, read_yaml(path))


def read_yaml(path: Path) -> object:
    """Read a YAML file as plain data. Raises `ParamsError` in one line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = one_line(error)
        raise ParamsError(f"{path}: cannot be read ({reason}); try `git checkout {path.name}`") from error
    if len(text) > _MAX_TEXT:
        raise ParamsError(f"{path.name}: {len(text)} characters, at most {_MAX_TEXT} are read; shorten it")
    try:
        return yaml.load(text, Loader=_Loader)
    except Exception as error:
        # Beside its own errors, PyYAML lets through what Python raises over a value unfit for its tag.
        where, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        line = f" at line {where.line + 1}" if where else ""
        reason = f" ({problem})" if problem else ""
        raise ParamsError(f"{path.name}: not valid YAML{line}{reason}; correct it there") from error


class _Loader(yaml.SafeLoader):
    """YAML 1.1, except that 1e-05 is a number as in YAML 1.2: so DVC writes what `-S key=0.00001` gave it.

    A key stands once in its section, sections lie `_MAX_DEPTH` deep at most, and aliases grow to `_MAX_NODES`
    values.
    """

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            problem = f"values within values, deeper than {_MAX_DEPTH}"
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # of its stubs
            raise yaml.composer.ComposerError(None, None, problem, mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None:
            self._count(node, {})
        return node

    def _count(self, node: yaml.Node, known: dict[yaml.Node, int]) -> int:
        """How many values `node` stands for, each alias counted as what it repeats."""
        if node not in known:
            known[node] = _MAX_NODES  # for what lies within: a node that holds itself has no end
            known[node] = 1 + sum(self._count(each, known) for each in _children(node))
        if known[node] > _MAX_NODES:
            raise yaml.constructor.ConstructorError(
                None, None, f"aliases grow to more than {_MAX_NODES} values", node.start_mark
            )
        return known[node]

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in seen:
                problem = f"the key {_shown(key.value)} comes twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add((key.tag, str(key.value)))
        return super().construct_mapping(node, deep)


def _children(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        yield from itertools.chain.from_iterable(node.value)
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def parse(kind: type[T], value: object, key: str = "") -> T:
    """Turn plain YAML data into a `kind`, a dataclass of this file, checked. Raises `ParamsError`."""
    if not isinstance(value, Mapping):
        raise ParamsError(f"{key or 'params.yaml'}: {_shown(value)} found, a section with keys is needed")
    hints = typing.get_type_hints(kind, include_extras=True)
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # "a dataclass" has no public type
    prefix = f"{key}." if key else ""
    for name in value:
        if name not in names:
            shown = name if isinstance(name, str) and name.isprintable() else _shown(name)
            raise ParamsError(f"{prefix}{shown}: unknown key; known here: {', '.join(names)}")
    for name in names:
        if name not in value:
            raise ParamsError(f"{prefix}{name}: missing; it must be {_allowed(hints[name])}")
    return kind(**{name: _convert(hints[name], value[name], prefix + name) for name in names})


def knobs(kind: type[Any] | None = None, prefix: str = "") -> dict[str, str]:
    """Every knob by its dotted key, in order, with what it may be in words."""
    found: dict[str, str] = {}
    for name, hint in typing.get_type_hints(kind or Params, include_extras=True).items():
        key = f"{prefix}{name}"
        found |= (
            knobs(typing.cast("type[Any]", hint), f"{key}.") if is_dataclass(hint) else {key: _allowed(hint)}
        )
    return found


def _convert(hint: Any, value: object, key: str) -> Any:
    """Return `value` as `hint` wants it, or raise `ParamsError` naming `key`."""
    if is_dataclass(hint):
        return parse(typing.cast("type[Any]", hint), value, key)
    converted = _match(hint, value)
    if converted is _NO:
        advice = ""
        if isinstance(value, str) and _is_number(value):
            advice = " (it was read as text; YAML wants numbers like 0.001 or 1.0e-3, without quotes)"
        raise ParamsError(f"{key}: {_shown(value)} is not allowed; it must be {_allowed(hint)}{advice}")
    return converted


_NO: Any = object()


def _match(hint: Any, value: object) -> Any:
    """Return `value` converted to `hint`, or `_NO`."""
    origin = get_origin(hint)
    result: Any = _NO
    if origin is Annotated:
        base, bounds = get_args(hint)
        matched = _match(base, value)
        result = matched if matched is not _NO and bounds.holds(matched) else _NO
    elif origin in {Union, types.UnionType}:
        result = next((found for part in get_args(hint) if (found := _match(part, value)) is not _NO), _NO)
    elif origin is Literal:
        result = value if isinstance(value, str) and value in get_args(hint) else _NO
    elif origin is tuple:
        result = _match_tuple(get_args(hint)[0], value)
    elif hint is type(None):
        result = None if value is None else _NO
    elif hint is float:
        result = _match_float(value)
    elif isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        result = value if not isinstance(value, str) or value.strip() else _NO
    return result


def _match_float(value: object) -> Any:
    """Return any number but NaN as float, or `_NO`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _NO
    try:
        number = float(value)
    except OverflowError:
        return _NO
    return _NO if math.isnan(number) else number


def _match_tuple(item: Any, value: object) -> Any:
    """Return a non-empty tuple of distinct items, or `_NO`."""
    if not isinstance(value, list) or not value:
        return _NO
    items = tuple(_match(item, each) for each in value)
    return _NO if _NO in items or len(set(items)) != len(items) else items


def _shown(value: object) -> str:
    """`value` as Python writes it, on one line, cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no integer of thousands of digits
        return f"a {type(value).__name__} too long to show"
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}…"


def _allowed(hint: Any) -> str:
    """Say in words what `hint` admits."""
    origin = get_origin(hint)
    if origin is Annotated:
        base, bounds = get_args(hint)
        return f"{_allowed(base)} {bounds}"
    if origin in {Union, types.UnionType}:
        return " or ".join(_allowed(part) for part in get_args(hint))
    if origin is Literal:
        return " | ".join(get_args(hint))
    if origin is tuple:
        return f"a list of different values, each {_allowed(get_args(hint)[0])}"
    if is_dataclass(hint):
        return "a section with keys"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}
    return names[hint]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _check_fit(params: Params) -> None:
    """Raise `ParamsError` where two values, each allowed by itself, do not fit together."""
    episode, data = params.episode, params.data
    if data.source == "folder" and data.archive is None:
        raise ParamsError(
            "data.archive: null, but data.source is folder; name the folder that holds the classes"
        )
    if data.source == "synthetic" and data.archive is not None:
        raise ParamsError(
            f"data.archive: {data.archive!r} is not used by data.source synthetic; "
            "set data.source to miniimagenet or folder, or data.archive to null"
        )
    if params.train.batchsz > params.train.episodes:
        raise ParamsError(
            f"train.batchsz: {params.train.batchsz}, but train.episodes is {params.train.episodes}; "
            "it must be at most that"
        )
    if params.model.head == "residual" and params.model.shots == "sum":
        raise ParamsError("model.shots: sum, but model.head residual compares means; set it to mean")
    _check_step(params)
    _check_meeting(params.parallel.init_method)
    _check_batchsz_study(params.batchsz_study)
    if params.batchsz_study.baseline not in params.batchsz_study.sizes:
        baseline, sizes = params.batchsz_study.baseline, ", ".join(map(str, params.batchsz_study.sizes))
        raise ParamsError(f"batchsz_study.baseline: {baseline} must be one of the sizes ({sizes})")
    _check_warmup_study(params.warmup_study)
    if params.train.val_episodes > params.evaluate.val_episodes:
        raise ParamsError(
            f"train.val_episodes: {params.train.val_episodes}, but evaluate.val_episodes packs only "
            f"{params.evaluate.val_episodes}; it must be at most that"
        )
    if params.evaluate.transductive_episodes == 1:
        raise ParamsError(
            "evaluate.transductive_episodes: 1, but an interval needs two; it must be 0 or at least 2"
        )
    if data.source != "folder":
        _check_fits_known_set(params)
    if episode.k_shot * episode.n_way > 10_000:
        raise ParamsError(
            f"episode.k_shot: {episode.k_shot} × {episode.n_way} classes is no few-shot task; at most 10000"
        )


def _check_step(params: Params) -> None:
    """What shapes a step goes together."""
    train, augment = params.train, params.augment
    if train.accumulate > train.batchsz:
        raise ParamsError(
            f"train.accumulate: {train.accumulate} parts, but a step has train.batchsz {train.batchsz} "
            "episodes; it must be at most that"
        )
    if train.recompute and train.compile in {"default", "reduce-overhead"}:
        raise ParamsError(
            f"train.recompute: true, but a network compiled with {train.compile} decides itself what it "
            "recomputes; set train.compile to none"
        )
    if train.accumulate > 1 and train.compile == "reduce-overhead":
        raise ParamsError(
            f"train.accumulate: {train.accumulate} parts, whose gradients a network compiled with "
            "reduce-overhead would overwrite; set train.compile to default or none"
        )
    if params.loader.backend == "jpeg" and (augment.crop < 1 or augment.flip or augment.jitter > 0):
        raise ParamsError(
            "augment: varies pixels on the device, but loader.backend jpeg normalises them before; "
            "set loader.backend to packed or resident"
        )


def _check_meeting(method: str) -> None:
    """An address has the form that torch.distributed reads."""
    if not re.fullmatch(r"env://|tcp://[^/\s]+:\d{1,5}|file:///\S+", method):
        raise ParamsError(
            f"parallel.init_method: {method!r} is none; it must be env://, tcp://HOST:PORT or file:///PATH"
        )


def _check_batchsz_study(study: BatchszStudyParams) -> None:
    """Every size gets whole steps in a block, and at least one in its training."""
    for size in study.sizes:
        if size > study.episodes:
            raise ParamsError(
                f"batchsz_study.sizes: {size}, but batchsz_study.episodes is {study.episodes}; "
                "each must be at most that"
            )
        if study.block_episodes % size:
            raise ParamsError(
                f"batchsz_study.block_episodes: {study.block_episodes} are no whole steps of {size}; "
                "it must be a multiple of every size"
            )


def _check_warmup_study(study: WarmupStudyParams) -> None:
    """There is a smallest and a largest size, and each gets a step to warm up and one after it."""
    if len(study.sizes) < 2:
        raise ParamsError(f"warmup_study.sizes: {list(study.sizes)}, but at least two sizes are compared")
    if 2 * max(study.sizes) > study.episodes:
        raise ParamsError(
            f"warmup_study.sizes: {max(study.sizes)}, but warmup_study.episodes is {study.episodes}; "
            "each must be at most half of that"
        )


def _check_fits_known_set(params: Params) -> None:
    """For sets whose size is known before they are there: classes per split and images per class suffice."""
    episode, source = params.episode, params.data.source
    smallest = min(SPLIT_CLASSES, key=lambda split: SPLIT_CLASSES[split])
    if episode.n_way > SPLIT_CLASSES[smallest]:
        raise ParamsError(
            f"episode.n_way: {episode.n_way}, but split {smallest} has {SPLIT_CLASSES[smallest]} classes; "
            f"it must be at most {SPLIT_CLASSES[smallest]}"
        )
    images = params.data.synthetic.images_per_class if source == "synthetic" else IMAGES_PER_CLASS
    queries = {"episode.k_query": episode.k_query, "evaluate.k_query": params.evaluate.k_query}
    for key, k_query in queries.items():
        if episode.k_shot + k_query > images:
            raise ParamsError(
                f"{key}: {k_query} with episode.k_shot {episode.k_shot} needs {episode.k_shot + k_query} "
                f"images per class, but {source} has {images}; it must be at most {images - episode.k_shot}"
            )


def select(params: Params, knobs: Sequence[str]) -> dict[str, str]:
    """The flat keys of `params` that are among `knobs` or lie in a section among them."""
    inside = tuple(f"{knob}." for knob in knobs)
    return {key: value for key, value in flatten(params).items() if key in knobs or key.startswith(inside)}


def flatten(section: Any, prefix: str = "") -> dict[str, str]:
    """Turn a section of the tree into {"dotted.key": "value"}, as tracking wants its parameters."""
    result: dict[str, str] = {}
    for each in fields(section):
        value = getattr(section, each.name)
        key = f"{prefix}{each.name}"
        result.update(flatten(value, f"{key}.") if is_dataclass(value) else {key: str(value)})
    return result
