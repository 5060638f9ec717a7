"""Stage `loader-bench`: loader workers × backends, in training and alone."""

from parashot.questions.loader.measure import bench_loaders
from stages.common import PACKED, RESULTS, provenance, resolved_params, stage


def main() -> None:
    params = resolved_params()
    bench_loaders(params, PACKED, RESULTS / "loader", provenance("loader-bench", params))


if __name__ == "__main__":
    stage(main)
