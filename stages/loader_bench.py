"""Stage `loader-bench`: loader workers × backends."""

from parashot.questions.loader.measure import bench_loaders
from stages.common import PACKED, RESULTS, params, provenance, stage


def main() -> None:
    settings = params()
    bench_loaders(settings, PACKED, RESULTS / "loader", provenance("loader-bench", settings))


if __name__ == "__main__":
    stage(main)
