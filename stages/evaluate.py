"""Stage `evaluate`: the model that validation chose, on test, once."""

from parashot.questions.accuracy.measure import evaluate_chosen
from stages.common import PACKED, RESULTS, params, stage
from stages.tags import tags


def main() -> None:
    evaluate_chosen(params(), PACKED, RESULTS / "train", RESULTS / "evaluate", tags())


if __name__ == "__main__":
    stage(main)
