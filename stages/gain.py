"""Stage `gain`: what all of the advice buys together, over what people do by default."""

from pathlib import Path

from parashot.hardware import usable_cores
from parashot.parallel.server import IMPORTED_BY_OPTIMIZERS, start_early
from parashot.questions.gain.claims import two_ways
from parashot.questions.results import load_results
from parashot.questions.study import analyse
from stages.common import PACKED, RESULTS, provenance, resolved_params, stage


def main() -> None:
    params = resolved_params()
    start_early(IMPORTED_BY_OPTIMIZERS, "parashot.questions.gain.measure")
    from parashot.questions.gain.measure import bench_gain  # with torch, which takes seconds

    study = analyse(load_results(Path(), (), partial=True), params)
    ways = two_ways(study, usable_cores())
    bench_gain(params, PACKED, ways, RESULTS / "gain", provenance("gain", params))


if __name__ == "__main__":
    stage(main)
