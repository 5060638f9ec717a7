"""Predicted step times of DDP on 1 and 2 replicas, a thread each on 2 cores, against measured ones.

Both are of the stage `strategy-bench`; the model of cost never sees how long a step of DDP takes. A row is
off where the prediction is more than 15% from the median measured.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.images import pack_noise
from benchmarks.outcome import Outcome, Table
from benchmarks.replicas import REPLICAS
from benchmarks.turns import BLOCKS
from benchmarks.workload import Workload
from parashot.parallel.registry import step_options
from parashot.questions.scaling.rows import Predictor, checked_rows
from parashot.questions.statistics import CONFIDENCE
from parashot.questions.strategies.measure import Benchmark, measure_strategies
from parashot.questions.strategies.records import StrategyResults
from parashot.tasks.relation import RelationTask

MOST_ERROR = 0.15

_ALL = (Workload("conv4", 32, 5, 8), Workload("conv4", 84, 1, 4), Workload("bottleneck", 84, 1, 4))
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
        for row in checked_rows(Predictor.of(bench, CONFIDENCE), bench)
    ]
    columns = ("step", "replicas", "predicted (s)", "measured (s)", "error in %", "verdict")
    return Outcome(
        "predict",
        [Table("Seconds per step, fp32 on the CPU, a thread per replica", columns, rows)],
        raw={workload.name: [*map(asdict, bench.blocks)] for workload, bench in benches.items()},
        settings={"quick": quick, "short": any(row[-1] == "off" for row in rows)},
    )


def strategy_bench(workload: Workload) -> StrategyResults:
    """Time serial and DDP on two replicas, on the CPU, as the stage `strategy-bench` does."""
    params = workload.params(
        {
            "parallel.device": "cpu",
            "parallel.replicas": REPLICAS,
            "parallel.dp.enabled": False,
            "parallel.bench.blocks": BLOCKS,
        }
    )
    with TemporaryDirectory(prefix="parashot-") as folder:
        packed = Path(folder) / "packed"
        pack_noise(packed, 640, workload.image_size)
        bench = Benchmark(RelationTask(params, packed), step_options(params.train), params.parallel)
        results = measure_strategies(bench)
    assert results is not None  # only other ranks that torchrun has started get nothing
    return results
