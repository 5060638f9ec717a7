"""Stage `publish`: bring every record into MLflow that is not there yet.

Also those that DVC restored from its cache.
"""

import logging
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from parashot.errors import ParashotError, RecordError, TrackingError
from parashot.params import Params
from parashot.tracking import ModelLoader, StudyRun, publish
from stages.common import params, stage, store
from stages.published import EVALUATED, is_current, is_reported, model, sweep, training, whole_study


def main() -> None:
    settings = params()
    try:
        publish_all(settings)
    except TrackingError as error:
        warn(error)


def publish_all(settings: Params) -> None:
    """Publish what there is: runs of sweeps, and those of a study or of a network without a report."""
    try:
        publish_runs(settings, *sweep(settings))
    except RecordError as error:  # no part of the study
        warn(error)
    with_models = partial(model, settings)
    if is_reported() and not is_current(settings):
        logging.info("publish: the report is of other params, and the study stays out; run `dvc repro`")
    elif is_reported():
        publish_runs(settings, *whole_study(settings), with_models)
    elif EVALUATED.exists():
        publish_runs(settings, *training(settings), with_models)


def warn(error: ParashotError) -> None:
    """Under DVC only warn, for it keeps nothing of a study that fails; else raise."""
    if "DVC_STAGE" not in os.environ:
        raise error
    logging.warning("warning: %s", error)


def publish_runs(
    settings: Params, study: StudyRun, folders: Sequence[Path], load_model: ModelLoader | None = None
) -> None:
    """Publish the runs of `folders`, if there are any, below the run of `study`."""
    if folders:
        done = publish(store(settings), study, folders, load_model)
        logging.info("publish: %d runs brought in, %d there already", done.published, done.already_there)


if __name__ == "__main__":
    stage(main)
