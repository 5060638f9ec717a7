"""`python tools/reference.py`: docs/reference.md, from params.yaml, dvc.yaml and the code.

With `--check` nothing is written; the exit status says whether the page is as the code is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from parashot.files import write_text
from parashot.knobs import knobs
from parashot.questions.accuracy.records import EvaluateResult, WarmupRun
from parashot.questions.batchsz.records import BatchszBlock, BatchszRun, BatchszTraining, GradientSample
from parashot.questions.loader.records import LoaderBlock
from parashot.questions.step.records import TuneBlock
from parashot.questions.strategies.records import (
    CostMessage,
    CostStep,
    StepShares,
    StepTrace,
    StrategyBlock,
    StrategyVariant,
)
from parashot.questions.ways.records import EpisodeWay, WayBlock
from parashot.train.records import EpisodeAccuracy, HistoryRow, SeedAccuracy, TrainResult

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/reference.md"
RECORDS: Mapping[str, Any] = {
    "results/tune/blocks.csv": TuneBlock,
    "results/loader/ways.csv": EpisodeWay,
    "results/loader/training.csv": WayBlock,
    "results/loader/blocks.csv": LoaderBlock,
    "results/gain/ways.csv": EpisodeWay,
    "results/gain/blocks.csv": WayBlock,
    "results/strategies/blocks.csv": StrategyBlock,
    "results/strategies/variants.csv": StrategyVariant,
    "results/strategies/anatomy.csv": StepTrace,
    "results/strategies/shares.csv": StepShares,
    "results/strategies/cost_steps.csv": CostStep,
    "results/strategies/cost_messages.csv": CostMessage,
    "results/pretrain/result.json": TrainResult,
    "results/pretrain/history.csv": HistoryRow,
    "results/train/NAME/result.json": TrainResult,
    "results/train/NAME/history.csv": HistoryRow,
    "results/train/NAME/val_episodes.csv": EpisodeAccuracy,
    "results/train/NAME/seeds.csv": SeedAccuracy,
    "results/batchsz/runs.csv": BatchszRun,
    "results/batchsz/blocks.csv": BatchszBlock,
    "results/batchsz/trainings.csv": BatchszTraining,
    "results/batchsz/gradients.csv": GradientSample,
    "results/warmup/runs.csv": WarmupRun,
    "results/evaluate/result.json": EvaluateResult,
    "results/evaluate/test_episodes.csv": EpisodeAccuracy,
}
"""Record behind each file of results."""


def main() -> int:
    """Write the page, or compare it, and return the exit status."""
    parts = [
        "# Reference",
        "What neither `params.yaml` nor `parashot COMMAND --help` says. Made by `python tools/reference.py`.",
    ]
    text = "\n\n".join([*parts, *_params(), *_stages(), *_files(), *_surroundings()]) + "\n"
    if sys.argv[1:] == ["--check"]:
        return int(PAGE.read_text(encoding="utf-8") != text)
    write_text(PAGE, text)
    return 0


def _params() -> Iterator[str]:
    yield "## Ranges of params.yaml"
    yield (
        "What each key means, its default, and its values where they are words, stand in `params.yaml`. "
        "Numbers have these ranges; a value outside is rejected in one line."
    )
    ranges = {key: allowed for key, allowed in knobs().items() if "number" in allowed}
    yield _table(["key", "allowed"], [[f"`{key}`", allowed] for key, allowed in ranges.items()])


def _stages() -> Iterator[str]:
    yield "## Stages"
    yield "`dvc repro -s NAME` runs one of them, `dvc dag` shows the graph."
    rows = []
    for name, stage in yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"].items():
        made = [*stage.get("outs", []), *stage.get("plots", [])]
        outs = ", ".join(f"`{each if isinstance(each, str) else next(iter(each))}`" for each in made)
        rows.append([f"`{name}`", f"`{stage['cmd']}`", outs or "none"])
    yield _table(["stage", "command", "outputs"], rows)


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (header, *rows)]
    return "\n".join([lines[0], f"|{'---|' * len(header)}", *lines[1:]])


def _files() -> Iterator[str]:
    yield "## Files of results"
    yield (
        "Every result folder also has `metrics.json`, numbers for `dvc metrics` (by setting, if a stage "
        "measures several), and `records.jsonl`, a line per run. Names contain units."
    )
    for file, record in RECORDS.items():
        columns = ", ".join(f"`{each.name}`" for each in fields(record))
        yield f"**`{file}`** {' '.join((record.__doc__ or '').split())} {columns}"


def _surroundings() -> Iterator[str]:
    yield "## Exit statuses"
    rows = [
        ["0", "done"],
        ["1", "one line on stderr says what is wrong and what to do; or a bound (`--fail-below`) is missed"],
        ["2", "options or values that the command does not take, or the wrong folder for it"],
        ["130", "Ctrl-C"],
    ]
    yield _table(["status", "of `parashot` and of `python -m benchmarks`"], rows)
    yield "## Environment variables"
    rows = [
        ["`MLFLOW_TRACKING_URI`", "MLflow's store or server; by default `mlflow.db` beside the code"],
        ["`CUDA_VISIBLE_DEVICES`", "the GPUs that are used"],
        ["`PARASHOT_…`", "the network between machines: [several-machines.md](several-machines.md#settings)"],
    ]
    yield _table(["variable", "meaning"], rows)


if __name__ == "__main__":
    sys.exit(main())
