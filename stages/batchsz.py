"""Stage `batchsz`: the same episodes in steps of several sizes, with the study's time limit."""

from parashot.questions.batchsz.measure import study_batch_sizes
from stages.common import PACKED, RESULTS, provenance, resolved_params, stage


def main() -> None:
    params = resolved_params()
    study_batch_sizes(params, PACKED, RESULTS / "batchsz", provenance("batchsz", params))


if __name__ == "__main__":
    stage(main)
