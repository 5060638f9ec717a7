"""Section `parallel` of params.yaml: devices, replicas, and a section for each strategy."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from parashot.errors import ParamsError
from parashot.params.sections import Auto, Positive
from parashot.parsing import Number, Switch, Whole, keys, parse
from parashot.records import record


@record
class StrategyParams:
    """Section of one strategy: whether it takes part. Options of its own stand in a subclass."""

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
    """Devices, replicas and the strategies that are compared.

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
        own = (name for name in keys(type(self)) if isinstance(getattr(self, name), StrategyParams))
        return (*own, *self.further)

    def section(self, strategy: str) -> StrategyParams:
        """Return the section of a strategy. Raises `ParamsError` where params.yaml has none."""
        if strategy not in self.strategies:
            raise ParamsError(f"parallel.{strategy}: missing; it must be a section with `enabled`")
        section: StrategyParams = self.further.get(strategy) or getattr(self, strategy)
        return section

    def switched_off(self, strategy: str) -> str:
        """Return why the user will not have the strategy run; an empty text where it is wanted."""
        return "" if self.section(strategy).enabled else f"parallel.{strategy}.enabled is false"
