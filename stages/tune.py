"""Stage `tune`: how a step is computed best here, measured where params say `auto`."""

from parashot.questions.step.measure import tune
from stages.common import CHOICES, PACKED, RESULTS, params, provenance, stage


def main() -> None:
    settings = params()
    tune(settings, PACKED, CHOICES, RESULTS / "tune", provenance("tune", settings))


if __name__ == "__main__":
    stage(main)
