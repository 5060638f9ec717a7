"""Stage `evaluate`: the model that validation chose, on test, once."""

from parashot.questions.accuracy.measure import evaluate_chosen
from stages.common import PACKED, RESULTS, params, provenance, stage


def main() -> None:
    settings = params()
    origin = provenance("evaluate", settings)
    evaluate_chosen(settings, PACKED, RESULTS / "train", RESULTS / "evaluate", origin)


if __name__ == "__main__":
    stage(main)
