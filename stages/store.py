"""Where MLflow's store is, and what its failures may cost.

It lies beside the code, where a plain `mlflow ui` finds it, unless the user names another.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from parashot.errors import TrackingError
from parashot.params import Params
from parashot.tracking import Store
from stages.common import root


def store(settings: Params) -> Store:
    """MLflow's store for these params."""
    return Store(root(), settings.tracking.experiment, os.environ.get("MLFLOW_TRACKING_URI"))


@contextmanager
def sparing_the_study() -> Iterator[None]:
    """In a study, a store that fails is no more than a warning: DVC keeps no experiment with a failed stage.

    What is called by hand fails.
    """
    try:
        yield
    except TrackingError as error:
        if "DVC_STAGE" not in os.environ:
            raise
        logging.warning("warning: %s", error)
