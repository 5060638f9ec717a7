"""Stage `batchsz`: the same episodes in steps of several sizes, with the study's time limit."""

from parashot.questions.batchsz.measure import study_batch_sizes
from stages.common import PACKED, RESULTS, stage
from stages.settled import settled_params
from stages.tags import tags


def main() -> None:
    study_batch_sizes(settled_params(), PACKED, RESULTS / "batchsz", tags())


if __name__ == "__main__":
    stage(main)
