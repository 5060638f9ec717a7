"""Results of a study of warm-ups that is not run. Imports no torch."""

from __future__ import annotations

from pathlib import Path

from parashot.questions.accuracy.records import WarmupResults
from parashot.questions.runs import Setting, Stage
from parashot.records import Provenance


def skip_warmup(out: Path, provenance: Provenance) -> None:
    """Write `out`: that the study is switched off."""
    setting = Setting("warm-up", {}, status="skipped", reason="warmup_study.enabled is false")
    Stage("warm-up", "warmup", provenance).write(out, WarmupResults(()), [setting])
