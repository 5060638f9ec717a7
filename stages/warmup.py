"""Stage `warmup`: usual and very large batches, with and without a warm-up of the learning rate."""

from parashot.questions.accuracy.warmup import study_warmup
from stages.common import PACKED, RESULTS, stage
from stages.settled import settled_params
from stages.tags import tags


def main() -> None:
    study_warmup(settled_params(), PACKED, RESULTS / "warmup", tags())


if __name__ == "__main__":
    stage(main)
