"""Stage `warmup`: usual and very large batches, with and without a warm-up of the learning rate."""

from pathlib import Path

from parashot.questions.accuracy.records import WarmupResults
from parashot.questions.runs import Setting, Stage
from parashot.records import Provenance
from stages.common import PACKED, RESULTS, provenance, resolved_params, stage


def main() -> None:
    params, out = resolved_params(), RESULTS / "warmup"
    origin = provenance("warmup", params)
    if not params.warmup_study.enabled:
        skip(out, origin)
        return
    from parashot.questions.accuracy.warmup import study_warmup  # with torch, which takes seconds

    study_warmup(params, PACKED, out, origin)


def skip(out: Path, origin: Provenance) -> None:
    """Write `out`: that the study is switched off."""
    setting = Setting("warm-up", {}, status="skipped", reason="warmup_study.enabled is false")
    Stage("warm-up", "warmup", origin).write(out, WarmupResults(()), [setting])


if __name__ == "__main__":
    stage(main)
