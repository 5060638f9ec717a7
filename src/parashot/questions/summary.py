"""The analysed study as plain JSON for results/summary.json, and as flat metrics for results/metrics.json."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, get_args

from parashot.errors import RecordError
from parashot.questions.claim import Verdict
from parashot.questions.statistics import Interval, flat
from parashot.questions.study import Study


def export(study: Study) -> dict[str, Any]:
    """Return the content of results/summary.json; a part that is missing is None or empty.

    An interval becomes three keys: `speedup`, `speedup_low`, `speedup_high`. Raises `RecordError` for a
    number that is not finite.
    """
    predictor, results = study.predictor, study.results
    whole = {each.name: getattr(study, each.name) for each in dataclasses.fields(study)}
    parts = {name: part for name, part in whole.items() if name not in {"results", "predictor", "checked"}}
    parts |= {
        "answer": study.answer,
        "settings": study.settings,
        "source": study.params.data.source,
        "synthetic": study.synthetic,
        "short_run": study.short_run,
        "missing": results.missing,
        "hardware": results.hardware,
        "choices": results.tune.choices if results.tune else None,
        "pretraining": results.pretraining.result if results.pretraining else None,
        "evaluate": results.evaluate.result if results.evaluate else None,
        "batchsz": tuple(study.batchsz.values()),
        "scaling": {
            "rows": study.scaling,
            "checked": study.checked,
            "hidden": predictor.hidden.value if predictor and predictor.hidden else None,
            "contention": float(predictor.replica.contention[0]) if predictor else None,
        },
    }
    return {name: _plain(part, f"summary.{name}") for name, part in parts.items()}


def metrics(study: Study) -> dict[str, float]:
    """Return the few numbers worth a column where studies are compared, for DVC and MLflow."""
    found: dict[str, Interval | float | None] = {}
    if study.results.evaluate:
        found["test_accuracy"] = study.results.evaluate.result.test_accuracy
    for name, row in study.strategies.items():
        found[f"{name}.seconds_per_step"] = row.seconds_per_step
        found[f"{name}.speedup"] = row.speedup
        found[f"{name}.val_accuracy"] = row.val_accuracy
    advised = next(each.settings for each in study.advice if each.topic == "loader")
    for loading in study.loading:
        way = loading.way
        if way.loading == (advised.get("loader.backend"), advised.get("loader.workers")):
            found["loader.workers"] = way.workers
            found["loader.seconds_per_step"] = loading.seconds_per_step
            found["loader.speedup"] = loading.speedup
            found["loader.waiting"] = loading.waiting
    for each in study.gain[1:]:  # the first is the default
        found["gain.seconds_per_step"] = each.seconds_per_step
        found["gain.speedup"] = each.speedup
    for size, run in study.batchsz.items():
        found[f"batchsz{size}.speedup"] = run.speedup
    for reached in study.sizes:  # not of the experiment of 2020, whose sizes had other times
        found[f"batchsz{reached.batchsz}.val_accuracy"] = reached.val_accuracy
    verdicts = Counter(claim.verdict for claim in study.claims)
    for verdict in get_args(Verdict):
        found[f"claims.{verdict.replace(' ', '_')}"] = verdicts[verdict]
    return {
        key: float(value.value if isinstance(value, Interval) else value)
        for key, value in found.items()
        if value is not None
    }


def _plain(part: Any, key: str) -> Any:
    """Return `part` as JSON knows it: dataclasses as objects, tuples as arrays."""
    if dataclasses.is_dataclass(part):
        part = flat(part)
    if isinstance(part, Mapping):
        return {name: _plain(value, f"{key}.{name}") for name, value in part.items()}
    if isinstance(part, tuple):
        return [_plain(value, f"{key}.{place}") for place, value in enumerate(part)]
    if isinstance(part, float) and not math.isfinite(part):
        raise RecordError(
            f"{key} is {part}: a result file holds a number that is not finite; run `dvc repro -f`"
        )
    return part
