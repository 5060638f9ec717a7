"""Stage `loader-bench`: loader workers × backends."""

from parashot.questions.loader.measure import bench_loaders
from stages.common import PACKED, RESULTS, params, stage
from stages.tags import tags


def main() -> None:
    bench_loaders(params(), PACKED, RESULTS / "loader", tags())


if __name__ == "__main__":
    stage(main)
