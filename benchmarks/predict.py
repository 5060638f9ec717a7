"""Predicted step times of DDP on 1 and 2 replicas, a thread each on 2 cores, against measured ones.

Both are of the stage `strategy-bench`. The model of cost is fitted to steps of one replica and to
all-reduces, timed in the same processes, and to how much of DDP's messages is hidden; it never sees how long
a step of DDP takes. A row is off where the prediction is more than 15% from the median measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.outcome import Outcome, Table
from benchmarks.workload import Workload, strategy_bench
from parashot.questions.results import StrategyResults
from parashot.questions.scaling.rows import Predictor, checked_rows
from parashot.questions.statistics import Resampling

MOST_ERROR = 0.15

_ALL = (Workload("conv4", 32, 5, 8), Workload("conv4", 84, 1, 4), Workload("bottleneck", 84, 1, 4))
"""The first is the default study's."""

_QUICK = (Workload("conv4", 32, 1, 4),)


def run(quick: bool) -> Outcome:
    """Measure, predict and compare every workload; `quick`: a small one."""
    benches = {workload: strategy_bench(workload) for workload in (_QUICK if quick else _ALL)}
    rows = [
        (
            workload.name,
            row.devices,
            row.predicted,
            row.measured,
            round(100 * row.error, 1),
            "off" if abs(row.error) > MOST_ERROR else "within 15%",
        )
        for workload, bench in benches.items()
        for row in checked_rows(Predictor.of(bench, Resampling()), bench)
    ]
    columns = ("step", "replicas", "predicted (s)", "measured (s)", "error in %", "verdict")
    return Outcome(
        "predict",
        [Table("Seconds per step, fp32 on the CPU, a thread per replica", columns, rows)],
        raw={workload.name: _raw(bench) for workload, bench in benches.items()},
        settings={"quick": quick, "short": any(row[-1] == "off" for row in rows)},
    )


def _raw(bench: StrategyResults) -> Mapping[str, Sequence[float]]:
    """Seconds of one step or all-reduce by what was timed."""
    raw: dict[str, list[float]] = {}
    for block in bench.blocks:
        raw.setdefault(block.variant, []).append(block.seconds / block.steps)
    for step in bench.cost_steps:
        raw.setdefault(f"{step.episodes} episodes, {step.busy} busy", []).append(step.seconds / step.steps)
    for message in bench.cost_messages:
        raw.setdefault(f"all-reduce of {message.bytes} B", []).append(message.seconds / message.calls)
    return raw
