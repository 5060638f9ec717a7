"""Show a training in MLflow while it runs: called by its first rank between steps, with the clock stopped."""

import logging

from parashot import tracking
from parashot.errors import ParashotError
from parashot.records import Run
from stages.common import params
from stages.store import store


def publish_live(run: Run) -> None:
    """Tell MLflow of `run` as far as it has come; a store that cannot be told never costs a training."""
    try:
        tracking.publish_live(store(params()), run)
    except ParashotError as error:
        logging.warning("MLflow does not show this training yet: %s", error)
