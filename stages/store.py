"""Where MLflow's store is.

Beside the code, where a plain `mlflow ui` finds it, unless the user names another.
"""

import os

from parashot.params import Params
from parashot.tracking import Store
from stages.common import root


def store(settings: Params) -> Store:
    """MLflow's store for these params."""
    return Store(root(), settings.tracking.experiment, os.environ.get("MLFLOW_TRACKING_URI"))
