"""The analysed study as plain JSON for results/summary.json, and as flat metrics for results/metrics.json."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from parashot.errors import RecordError
from parashot.params import Params
from parashot.questions.results import StudyResults
from parashot.questions.statistics import Interval
from parashot.questions.study import Study, analyse

Tree = dict[str, Any]


def export(study: Study) -> Tree:
    """Return the content of results/summary.json; a part that is missing is None or empty.

    An interval becomes three keys: `speedup`, `speedup_low`, `speedup_high`. Raises `RecordError` for a
    number that is not finite.
    """
    predictor = study.predictor
    parts: Tree = {
        "answer": study.answer,
        "source": study.params.data.source,
        "synthetic": study.synthetic,
        "short_run": study.short_run,
        "missing": study.missing,
        "hardware": study.hardware,
        "params": study.params,
        "choices": study.choices,
        "step": study.step,
        "loader": study.loader,
        "strategies": study.strategies,
        "accuracy": study.accuracy,
        "pretraining": study.pretraining,
        "time_to_accuracy": study.time_to_accuracy,
        "scaling": {
            "rows": study.scaling,
            "checked": study.checked,
            "hidden": predictor.hidden.value if predictor and predictor.hidden else None,
            "contention": float(predictor.replica.contention[0]) if predictor else None,
        },
        "batchsz": tuple(study.batchsz.values()),
        "evaluate": study.evaluate,
        "tasks": study.tasks,
        "confusion": study.confusion,
        "claims": study.claims,
        "advice": study.advice,
    }
    return {name: _plain(part, f"summary.{name}") for name, part in parts.items()}


def metrics(study: Study) -> dict[str, float]:
    """Return the few numbers worth a column where studies are compared, for DVC and MLflow."""
    found: dict[str, float | None] = {}
    if study.evaluate:
        found["test_accuracy"] = study.evaluate.test_accuracy
    for name, row in study.strategies.items():
        found[f"{name}.seconds_per_step"] = _value(row.seconds_per_step)
        found[f"{name}.speedup"] = _value(row.speedup)
        found[f"{name}.val_accuracy"] = row.val_accuracy
    advised = {each.topic: each.choice for each in study.advice}
    for setting in study.loader:
        if (setting.backend, str(setting.workers)) == (
            study.params.loader.backend,
            advised["loader workers"],
        ):
            found["loader.workers"] = setting.workers
            found["loader.episodes_per_second"] = setting.episodes_per_second.value
            found["loader.speedup"] = _value(setting.speedup)
    for size, run in study.batchsz.items():
        found[f"batchsz{size}.speedup"] = _value(run.speedup)
        found[f"batchsz{size}.val_accuracy"] = run.val_accuracy
    verdicts = Counter(claim.verdict for claim in study.claims)
    for verdict in ("holds", "does not hold", "undecided", "cannot be tested here"):
        found[f"claims.{verdict.replace(' ', '_')}"] = verdicts[verdict]
    return {key: float(value) for key, value in found.items() if value is not None}


def flat(row: Any, key: str = "row") -> Tree:
    """Turn a row into a flat dict; an `Interval` becomes NAME, NAME_low and NAME_high.

    Raises `RecordError`, which names `key`, for a number that is not finite.
    """
    tree: Tree = {}
    for field in dataclasses.fields(row):
        name, value = field.name, getattr(row, field.name)
        if "Interval" in str(field.type):
            ends = (value.value, value.low, value.high) if value else (None, None, None)
            tree |= zip((name, f"{name}_low", f"{name}_high"), ends, strict=True)
        else:
            tree[name] = value
    return {name: _plain(value, f"{key}.{name}") for name, value in tree.items()}


def _plain(part: Any, key: str) -> Any:
    """Return `part` as JSON knows it: dataclasses as objects, tuples as arrays."""
    if dataclasses.is_dataclass(part):
        return flat(part, key)
    if isinstance(part, Mapping):
        return {name: _plain(value, f"{key}.{name}") for name, value in part.items()}
    if isinstance(part, tuple):
        return [_plain(value, f"{key}.{place}") for place, value in enumerate(part)]
    if isinstance(part, float) and not math.isfinite(part):
        raise RecordError(
            f"{key} is {part}: a result file holds a number that is not finite; run `dvc repro -f`"
        )
    return part


def _value(interval: Interval | None) -> float | None:
    return interval.value if interval else None


# --- for the report as it was before it took a `Study`: goes with it ----------------------------------


def summarize(results: StudyResults, params: Params) -> dict[str, Any]:
    """Export a study, with the keys that only the old report reads."""
    study = analyse(results, params)
    tree = export(study)
    tree["scaling"]["published"] = tree["table1"] = []
    choices = {name: getattr(study.choices, name, None) for name in ("pairing", "precision", "compile")}
    return tree | {"method": choices | _method(params)}


def _method(params: Params) -> dict[str, Any]:
    return {
        "n_way": params.episode.n_way,
        "k_shot": params.episode.k_shot,
        "k_query": params.episode.k_query,
        "eval_k_query": params.evaluate.k_query,
        "embedding": params.model.embedding,
        "image_size": params.model.image_size,
        "train_episodes": params.train.episodes,
        "batchsz": params.train.batchsz,
        "batch_per": params.train.batch_per,
        "seed": params.seed,
        "seeds": params.seeds_study.seeds if params.seeds_study.enabled else 1,
        "loader_backend": params.loader.backend,
        "loader_workers": params.loader.workers,
        "loader_blocks": params.loader.bench.blocks,
        "loader_batches": params.loader.bench.batches,
        "loader_batchsz": params.loader.bench.batchsz,
        "strategy_blocks": params.parallel.bench.blocks,
        "strategy_steps": params.parallel.bench.steps,
        "strategy_warmup_steps": params.parallel.bench.warmup_steps,
        "batchsz_blocks": params.batchsz_study.blocks,
        "batchsz_block_episodes": params.batchsz_study.block_episodes,
        "batchsz_episodes": params.batchsz_study.episodes,
        "batchsz_baseline": params.batchsz_study.baseline,
        "val_episodes": params.evaluate.val_episodes,
        "test_episodes": params.evaluate.test_episodes,
        "accuracy_margin": params.claims.accuracy_margin,
        "confidence": params.claims.confidence,
        "resamples": params.claims.resamples,
    }
