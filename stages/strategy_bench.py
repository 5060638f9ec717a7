"""Stage `strategy-bench`: every time and speedup of the strategies, in interleaved blocks."""

import os

from parashot.questions.strategies.measure import bench_strategies
from stages.common import PACKED, RESULTS, stage
from stages.settled import settled_params
from stages.tags import tags


def main() -> None:
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # ranks inherit it: torch's profiler is not to chatter
    bench_strategies(settled_params(), PACKED, RESULTS / "strategies", tags())


if __name__ == "__main__":
    stage(main)
