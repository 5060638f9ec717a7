"""The run that the user's own script has begun in MLflow, if it has."""

from __future__ import annotations

import sys
from collections.abc import Mapping


def tell_active_run(metrics: Mapping[str, float]) -> None:
    """Log `metrics` to the active run; a script that has not imported MLflow has none."""
    mlflow = sys.modules.get("mlflow")
    if mlflow is not None and mlflow.active_run() is not None:
        mlflow.log_metrics(dict(metrics))
