"""Stage `warmup`: usual and very large batches, with and without a warm-up of the learning rate."""

from parashot.questions.accuracy.warmup import study_warmup
from stages.common import PACKED, RESULTS, provenance, resolved_params, stage


def main() -> None:
    params = resolved_params()
    study_warmup(params, PACKED, RESULTS / "warmup", provenance("warmup", params))


if __name__ == "__main__":
    stage(main)
