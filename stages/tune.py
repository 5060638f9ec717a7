"""Stage `tune`: how a step is computed best here, measured where params say `auto`."""

from parashot.parallel.server import IMPORTED_BY_OPTIMIZERS, start_early
from stages.common import CHOICES, PACKED, RESULTS, params, provenance, stage


def main() -> None:
    settings = params()
    start_early(IMPORTED_BY_OPTIMIZERS, "parashot.questions.step.measure")
    from parashot.questions.step.measure import tune  # with torch, which takes seconds

    tune(settings, PACKED, CHOICES, RESULTS / "tune", provenance("tune", settings))


if __name__ == "__main__":
    stage(main)
