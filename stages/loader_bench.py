"""Stage `loader-bench`: loader workers × backends, in training and alone."""

from parashot.parallel.server import IMPORTED_BY_OPTIMIZERS, start_early
from stages.common import PACKED, RESULTS, provenance, resolved_params, stage


def main() -> None:
    params = resolved_params()
    start_early(IMPORTED_BY_OPTIMIZERS, "parashot.questions.loader.measure")
    from parashot.questions.loader.measure import bench_loaders  # with torch, which takes seconds

    bench_loaders(params, PACKED, RESULTS / "loader", provenance("loader-bench", params))


if __name__ == "__main__":
    stage(main)
