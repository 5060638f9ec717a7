"""Stage `warmup`: usual and very large batches, with and without a warm-up of the learning rate."""

from parashot.questions.accuracy.skipped import skip_warmup
from stages.common import PACKED, RESULTS, provenance, resolved_params, stage


def main() -> None:
    params, out = resolved_params(), RESULTS / "warmup"
    origin = provenance("warmup", params)
    if not params.warmup_study.enabled:
        skip_warmup(out, origin)
        return
    from parashot.questions.accuracy.warmup import study_warmup  # with torch, which takes seconds

    study_warmup(params, PACKED, out, origin)


if __name__ == "__main__":
    stage(main)
