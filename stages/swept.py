"""Runs of `parashot sweep` on their way into MLflow, under a study of their own."""

from collections.abc import Callable
from pathlib import Path

from parashot.params import Params
from parashot.tracking import LoggableModel, Study, publish
from stages.common import RESULTS
from stages.store import store
from stages.tags import tags

SWEEP = RESULTS / "sweep"


def publish_sweeps(settings: Params, load_model: Callable[[Path], LoggableModel]) -> None:
    """Bring in every run of results/sweep that is not there yet."""
    folders = sorted(path.parent for path in SWEEP.glob("*/records.jsonl"))
    if folders:
        data = settings.data.source
        study = Study(f"sweep on {data} data", tags={**tags(), "data": data})
        publish(store(settings), study, folders, load_model)
