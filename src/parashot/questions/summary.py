"""The whole study as plain JSON: what the report shows, `results/summary.json` holds, and flat metrics."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

from parashot.errors import RecordError
from parashot.params import Params
from parashot.questions.accuracy.compare import compare
from parashot.questions.accuracy.confused import worst_confusions
from parashot.questions.accuracy.tasks import task_rows
from parashot.questions.accuracy.time_to_accuracy import time_to_accuracy
from parashot.questions.advice import advise, answer
from parashot.questions.evidence import Evidence
from parashot.questions.ledger import judge_claims
from parashot.questions.results import StudyResults
from parashot.questions.scaling.published import published_rows
from parashot.questions.scaling.rows import Predictor, checked_rows, shown_rows
from parashot.questions.statistics import Interval, Resampling
from parashot.questions.step.rows import step_rows
from parashot.questions.strategies.comparison import comparison_rows
from parashot.questions.strategies.rows import BASE
from parashot.records import Hardware

Tree = dict[str, Any]

LONG_RUN_EPISODES = 200_000
"""Below this many training episodes a run is short, and its accuracy is not comparable with published ones:
LibFewShot trains a Relation Network for 100 epochs of 2000 episodes; the study used ten times as many."""


def summarize(results: StudyResults, params: Params) -> Tree:
    """Summarize a study as plain JSON; a part that is missing is None or empty, and `missing` says why.

    An interval is three keys: `speedup`, `speedup_low`, `speedup_high`. Raises `RecordError` for a number
    that is not finite.
    """
    evidence = Evidence.of(results, params)
    advice = advise(evidence)
    summary: Tree = {
        "answer": answer(advice),
        "source": params.data.source,
        "synthetic": params.data.source == "synthetic",
        "short_run": params.train.episodes < LONG_RUN_EPISODES,
        "missing": dict(results.missing),
        "hardware": _hardware(results.hardware) if results.hardware else None,
        "method": _method(params) | _choices(results),
        "step": _step(results, evidence.resampling),
        "loader": [flat(row) for row in evidence.loader],
        "strategies": {name: flat(row) for name, row in evidence.strategies.items()},
        "accuracy": _accuracy(results, params),
        "pretraining": dataclasses.asdict(results.pretraining.result) if results.pretraining else None,
        "time_to_accuracy": [flat(row) for row in time_to_accuracy(results, _images_per_episode(params))],
        "scaling": _scaling(results, evidence.resampling),
        "batchsz": [flat(row) for _, row in sorted(evidence.batchsz.items())],
        "evaluate": dataclasses.asdict(results.evaluate.result) if results.evaluate else None,
        "tasks": [flat(row) for row in task_rows(results.evaluate.tasks if results.evaluate else ())],
        "confusion": _confusion(results),
        "table1": [flat(row) for row in comparison_rows(results)],
        "claims": [flat(claim) for claim in judge_claims(evidence)],
        "advice": [flat(each) for each in advice],
    }
    _check_finite(summary, "summary")
    return summary


def flat(row: Any) -> Tree:
    """Turn a row into a flat dict; an `Interval` becomes NAME, NAME_low and NAME_high."""
    result: Tree = {}
    for each in dataclasses.fields(row):
        value = getattr(row, each.name)
        result[each.name] = value.value if isinstance(value, Interval) else value
        if "Interval" in str(each.type):
            result[f"{each.name}_low"] = value.low if value else None
            result[f"{each.name}_high"] = value.high if value else None
    return result


def summary_metrics(summary: Mapping[str, Any]) -> dict[str, float]:
    """Pick the few numbers worth a column where studies are compared: flat, for DVC and MLflow."""
    metrics: dict[str, float | None] = {"test_accuracy": (summary["evaluate"] or {}).get("test_accuracy")}
    for name, row in summary["strategies"].items():
        metrics |= {f"{name}.{key}": row[key] for key in ("seconds_per_step", "speedup", "val_accuracy")}
    advised = {each["topic"]: each["choice"] for each in summary["advice"]}
    for row in summary["loader"]:
        setting = (row["backend"], str(row["workers"]))
        if setting == (summary["method"]["loader_backend"], advised["loader workers"]):
            metrics |= {f"loader.{key}": row[key] for key in ("workers", "episodes_per_second", "speedup")}
    for row in summary["batchsz"]:
        metrics |= {f"batchsz{row['batchsz']}.{key}": row[key] for key in ("speedup", "val_accuracy")}
    for verdict in ("holds", "does not hold", "undecided", "cannot be tested here"):
        count = sum(claim["verdict"] == verdict for claim in summary["claims"])
        metrics[f"claims.{verdict.replace(' ', '_')}"] = count
    return {key: float(value) for key, value in metrics.items() if value is not None}


def _hardware(hardware: Hardware) -> Tree:
    return dataclasses.asdict(hardware) | {"gpus": list(hardware.gpus)}


def _method(params: Params) -> Tree:
    """What a reader must know to judge the numbers, or to measure them again."""
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


def _images_per_episode(params: Params) -> int:
    episode = params.episode
    return episode.n_way * (episode.k_shot + episode.k_query)


def _choices(results: StudyResults) -> Tree:
    """How every strategy computed its steps; None where that is not known."""
    choices = results.tune and results.tune.choices
    names = ("pairing", "precision", "compile")
    return {name: getattr(choices, name) if choices else None for name in names}


def _step(results: StudyResults, resampling: Resampling) -> list[Tree]:
    if results.tune is None:
        return []
    return [flat(row) for row in step_rows(results.tune.blocks, results.tune.choices, resampling)]


def _scaling(results: StudyResults, resampling: Resampling) -> Tree:
    """Predictions for other machines, predictions beside measurements here, and beside published ones."""
    tree: Tree = {
        "rows": [],
        "checked": [],
        "published": [flat(row) for row in published_rows()],
        "hidden": None,
        "contention": None,
    }
    if results.strategies is None or not results.strategies.cost_steps:
        return tree
    predictor = Predictor.of(results.strategies, resampling)
    return tree | {
        "rows": [flat(row) for row in shown_rows(predictor)],
        "checked": [flat(row) for row in checked_rows(predictor, results.strategies)],
        "hidden": predictor.hidden.value if predictor.hidden else None,
        "contention": float(predictor.replica.contention[0]),
    }


def _confusion(results: StudyResults) -> list[Tree]:
    """The classes of the test split that are mistaken most often."""
    return [flat(row) for row in worst_confusions(results.evaluate.confusion)] if results.evaluate else []


def _accuracy(results: StudyResults, params: Params) -> list[Tree]:
    """Every finished training against serial's, and DDP's against DP's, on the same episodes."""
    pairs = [(name, BASE) for name in results.training if name != BASE] + [("ddp", "dp")]
    rows = []
    for first, second in pairs:
        rows.append(compare(results, first, second, params.claims))
    return [flat(row) for row in rows if row]


def _check_finite(tree: Any, key: str) -> None:
    if isinstance(tree, Mapping):
        for name, value in tree.items():
            _check_finite(value, f"{key}.{name}")
    elif isinstance(tree, Iterable) and not isinstance(tree, str):
        for place, value in enumerate(tree):
            _check_finite(value, f"{key}.{place}")
    elif isinstance(tree, float) and not math.isfinite(tree):
        raise RecordError(
            f"{key} is {tree}: a result file holds a number that is not finite; run `dvc repro -f`"
        )
