"""Pretraining: the embedding as a classifier of all training classes, on all cores or one GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from parashot.params import Params
from parashot.records import Provenance, Run
from parashot.train.job import pretraining_job
from parashot.train.records import TrainResult
from parashot.train.run import train_on_all_cores


def pretrain(
    params: Params,
    packed: Path,
    weights: Path,
    out: Path,
    provenance: Provenance,
    live: Callable[[Run], None] | None = None,
    scratch: Path | None = None,
) -> TrainResult | None:
    """Pretrain the embedding and write the model file `weights` and the results `out`.

    Goes on where a killed one was saved. Raises `DataError` where a batch is larger than the split.
    """
    return train_on_all_cores(pretraining_job(params, packed, weights, out, provenance, live, scratch))
