"""The study's Table 1, DataParallel against DistributedDataParallel: each cell measured here, or cited."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from parashot.questions.results import StudyResults
from parashot.questions.strategies.records import StepAnatomy
from parashot.questions.study2020 import TABLE_1, StudyComparisonRow
from parashot.questions.text import counted, listed, size

Origin = Literal["measured", "cited", "not measured"]


@dataclass(frozen=True)
class Cell:
    """What holds of one strategy, and where that comes from."""

    text: str
    origin: Origin


@dataclass(frozen=True)
class ComparisonRow:
    """One aspect: the study's words, and ours."""

    aspect: str
    study_dp: str
    dp: str
    dp_origin: Origin
    study_ddp: str
    ddp: str
    ddp_origin: Origin


CITED = {
    "machines": (
        "one: a single process holds all devices (PyTorch documentation, nn.DataParallel)",
        "one or many (PyTorch documentation, DistributedDataParallel)",
    ),
    "model over several GPUs": (
        "no: every device holds the whole model (PyTorch documentation, nn.DataParallel)",
        "possible: a replica may span devices (PyTorch tutorial, combining DDP with model parallelism)",
    ),
    "kind of parallelism": (
        "data (PyTorch documentation, nn.DataParallel)",
        "data; with model parallelism inside each replica where the user builds it (the same tutorial)",
    ),
}


def comparison_rows(results: StudyResults) -> list[ComparisonRow]:
    """Return Table 1, in the study's order."""
    anatomy = {each.variant: each for each in results.strategies.anatomy} if results.strategies else {}
    why = {name: _why_not_measured(results, name) for name in ("dp", "ddp")}
    return [_row(row, anatomy, why) for row in TABLE_1]


def _row(
    study: StudyComparisonRow, anatomy: Mapping[str, StepAnatomy], why: Mapping[str, str]
) -> ComparisonRow:
    dp, ddp = _cell(study.aspect, "dp", anatomy, why), _cell(study.aspect, "ddp", anatomy, why)
    return ComparisonRow(study.aspect, study.dp, dp.text, dp.origin, study.ddp, ddp.text, ddp.origin)


def _cell(aspect: str, variant: str, anatomy: Mapping[str, StepAnatomy], why: Mapping[str, str]) -> Cell:
    if aspect in CITED:
        return Cell(CITED[aspect][("dp", "ddp").index(variant)], "cited")
    if variant not in anatomy:
        return Cell(why[variant], "not measured")
    say = _communication if aspect == "communication" else _processes
    return Cell(say(anatomy[variant]), "measured")


def _communication(step: StepAnatomy) -> str:
    counts = (
        (step.scatters, "scatter", "scatters"),
        (step.gathers, "gather", "gathers"),
        (step.reduces, "reduce", "reduces"),
        (step.all_reduces, "all-reduce", "all-reduces"),
        (step.broadcasts, "broadcast", "broadcasts"),
    )
    seen = [counted(*each) for each in counts if each[0]]
    return f"per step {listed(seen) or 'no exchange'}; {size(step.gradient_bytes)} of gradients per replica"


def _processes(step: StepAnatomy) -> str:
    return (
        f"the forward pass ran in {counted(step.processes, 'process', 'processes')} "
        f"and {counted(step.threads, 'thread')} in all"
    )


def _why_not_measured(results: StudyResults, name: str) -> str:
    if results.strategies is None:
        return results.missing.get("strategies", "results/strategies is missing; run `dvc repro`")
    variant = next((each for each in results.strategies.variants if each.variant == name), None)
    return variant.reason if variant and variant.status == "skipped" else f"no step of {name} was observed"
