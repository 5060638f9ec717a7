"""Stage `strategy-bench`: every time and speedup of the strategies, in interleaved blocks."""

import os

from parashot.parallel.server import IMPORTED_BY_OPTIMIZERS, start_early
from stages.common import PACKED, RESULTS, provenance, resolved_params, stage


def main() -> None:
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler logs nothing, in the ranks neither
    params = resolved_params()
    start_early(IMPORTED_BY_OPTIMIZERS, "parashot.questions.strategies.measure")
    from parashot.questions.strategies.measure import bench_strategies  # with torch, which takes seconds

    bench_strategies(params, PACKED, RESULTS / "strategies", provenance("strategy-bench", params))


if __name__ == "__main__":
    stage(main)
