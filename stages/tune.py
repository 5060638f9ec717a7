"""Stage `tune`: how a step is computed best here, decided by measurement where params say `auto`."""

from parashot.questions.step.measure import tune
from stages.common import PACKED, RESULTS, params, stage
from stages.settled import CHOICES
from stages.tags import tags


def main() -> None:
    tune(params(), PACKED, CHOICES, RESULTS / "tune", tags())


if __name__ == "__main__":
    stage(main)
