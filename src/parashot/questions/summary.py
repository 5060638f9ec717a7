"""For the report as it was before it took a `Study`: goes with it."""

from __future__ import annotations

from typing import Any

from parashot.params import Params
from parashot.questions.export import export
from parashot.questions.results import StudyResults
from parashot.questions.study import analyse


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
